"""Descriptors of windows of composed scenes, as those of a raster's cells are computed."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from sklearn.model_selection import KFold, StratifiedKFold
from torch import Tensor

from mgcap.data.composed import ACROSS, compose, in_turn, shares
from mgcap.data.imagery import imagery_of
from mgcap.data.stream import to_tensor
from mgcap.errors import MgcapError
from mgcap.inference.dense import describe_block, is_dense
from mgcap.inference.descriptors import large_rows
from mgcap.inference.engines import Engine
from mgcap.inference.layout import Layout
from mgcap.inference.projection import projection_for
from mgcap.model import MGCAP
from mgcap.runtime import Runtime
from mgcap.training.setup import TrainingSet
from mgcap.typing import Array

#: Folds of the cross-validation; a scene is composed of the images of one of them.
FOLDS = 5
#: Windows along the side of a scene.
WINDOWS = 14
#: The side of an image within a scene, in pixels, at most.
LARGEST = 320


@dataclass(frozen=True)
class Composed:
    """Windows of composed scenes."""

    rows: Tensor  #: ``[n, p]``: their descriptors, as an index keeps them
    shares: Tensor  #: ``[n, K]``: which part of each shows which class
    folds: Array  #: ``[n]``: the fold of the images that each was made of


def draw_folds(targets: Array, seed: int) -> Array:
    """The fold of each image, with the classes alike in all folds where they have enough images."""
    least = int(np.bincount(targets)[np.unique(targets)].min())
    count = min(FOLDS, least if least > 1 else len(targets))
    chooser = (StratifiedKFold if least > 1 else KFold)(count, shuffle=True, random_state=seed)
    folds = np.zeros(len(targets), np.int64)
    for number, (_, members) in enumerate(chooser.split(targets, targets)):
        folds[members] = number
    return folds


def composed_windows(
    model: MGCAP, engine: Engine, data: TrainingSet, folds: Array, count: int, runtime: Runtime
) -> Composed:
    """Describe about ``count`` windows of scenes that are composed of training images.

    Args:
        model: Its reduction counts.
        engine: Computes its backbones.
        data: Images that can be read.
        folds: The fold of each.
        count: Windows, rounded up to whole scenes for each fold.
        runtime: Seed and progress.

    Raises:
        MgcapError: If the network cannot look at large blocks.
    """
    if not is_dense(model):
        raise MgcapError(f"composed: {model.config.backbone} cannot look at scenes larger than its views")
    rng = np.random.default_rng((runtime.seed, 7))
    targets, classes = np.asarray(data.targets), len(data.classes)
    side = min(imagery_of(data.items).side, LARGEST)
    numbers = np.unique(folds)
    scenes = [fold for _ in range(-(-count // (len(numbers) * WINDOWS**2))) for fold in numbers]
    streams = {fold: in_turn(np.flatnonzero(folds == fold).tolist(), ACROSS**2, rng) for fold in numbers}
    rows = large_rows(len(scenes) * WINDOWS**2, projection_for(model).length(model.head.in_features))
    found = torch.zeros(len(rows), classes)
    with runtime.progress("Describing composed scenes", len(rows)) as step:
        for scene, fold in enumerate(scenes):
            own = slice(scene * WINDOWS**2, (scene + 1) * WINDOWS**2)
            pixels, shown = compose(
                lambda i: to_tensor(data.items[i]), [next(streams[fold]) for _ in range(2)], targets, side, rng
            )
            rows[own], found[own] = _windows(model, engine, pixels, shown, side, rng, classes)
            step(WINDOWS**2)
    return Composed(rows, found, np.repeat(np.array(scenes), WINDOWS**2))


def _windows(
    model: MGCAP, engine: Engine, pixels: Tensor, shown: Array, side: int, rng: np.random.Generator, classes: int
) -> tuple[Tensor, Tensor]:
    """Vectors and shares of windows at random columns and rows of a scene."""
    whole = pixels.shape[-1]
    left, top = (np.sort(rng.integers(0, whole - side + 1, WINDOWS)) for _ in range(2))
    xs, ys = ((corner + side / 2 - whole / 2).tolist() for corner in (left, top))
    layout = Layout(tuple(xs), tuple(ys), side, model.config)
    border = max(0, math.ceil((layout.side + 2 - whole) / 2))
    image = F.pad(pixels[None], (border,) * 4, mode="reflect")[0]
    described = describe_block(model, engine, layout, image, range(WINDOWS**2))
    found = [shares(shown, (int(x), int(y)), side, classes) for y in top for x in left]
    return projection_for(model)(described.descriptors.float().cpu()), torch.from_numpy(np.stack(found))
