"""What is fitted to unlabelled images: the PCA of the channels, and the constants of int8."""

from __future__ import annotations

import copy
from collections.abc import Collection, Sequence

import numpy as np
import torch
from torch import Tensor

from mgcap.data.stream import Item, image_batches
from mgcap.errors import DataError
from mgcap.inference.engines import Engine
from mgcap.inference.engines.openvino import CALIBRATION_VIEWS
from mgcap.inference.extraction import LARGEST, Step
from mgcap.model import MGCAP
from mgcap.reduction import FeatureMoments, Reduction

#: Training images that the PCA sees, at one rotation each: 50,000 local features for 128 axes.
PCA_IMAGES = 256
#: How many of these go through the network together.
PCA_BATCH = 8


@torch.inference_mode()
def fit_reductions(
    model: MGCAP,
    engine: Engine | None,
    items: Sequence[Item],
    groups: Sequence[Collection[int]],
    seed: int = 0,
    on_step: Step = lambda n: None,
    activate: bool = False,
) -> list[Reduction]:
    """A PCA for each group of (training) images, fitted on local features of a seeded choice of its members.

    Groups choose in the same order, so that those of several splits share most of the images that are looked at.

    Args:
        model: In evaluation mode.
        engine: Computes its backbones; torch without one.
        items: Images.
        groups: Indices of the images that each PCA may see.
        seed: Seed of the choice.
        on_step: Called with the number of images done.
        activate: Apply the ReLU to features that the network gives without it.

    Raises:
        DataError: If there is nothing to fit to.
    """
    order = np.random.default_rng(seed).permutation(len(items)).tolist()
    chosen = []
    for group in groups:
        members = set(group)
        chosen.append(set([i for i in order if i in members][:PCA_IMAGES]))
    union = set().union(*chosen)
    moments = [FeatureMoments(model.reduction.channels_in) for _ in groups]
    angles = model.config.angles
    batches = image_batches(items, PCA_BATCH, lambda i, e: None, order=(i for i in order if i in union))
    for number, (indices, images) in enumerate(batches):
        for granularity in range(len(model.config.granularities)):
            angle = angles[number % len(angles)]
            features = model.features_at(images.to(model.mean.device), granularity, [angle], engine)
            features = features.relu() if activate else features
            usable = features.flatten(1).abs().amax(1) < LARGEST  # the others are reported when rows are made of them
            for own, members in zip(moments, chosen, strict=True):
                if mine := [k for k, index in enumerate(indices) if index in members and usable[k]]:
                    own.add(features[mine])
        on_step(len(images))
    reductions = []
    for own in moments:
        if own.count < 2:
            raise DataError("no image could be read that the PCA could be fitted to, or none has finite features")
        reduction = copy.deepcopy(model.reduction)
        reduction.fit(own)
        reductions.append(reduction)
    return reductions


def pca_images(groups: Sequence[Collection[int]]) -> int:
    """About how many images :func:`fit_reductions` looks at, for a progress bar."""
    return min(len(set().union(*groups)), PCA_IMAGES * (1 if len(groups) == 1 else 2))


@torch.inference_mode()
def calibration_views(model: MGCAP, items: Sequence[Item], seed: int = 0) -> list[Tensor]:
    """Normalised views of (a seeded choice of) the training images, to quantise with, at all rotations in turn."""
    c = model.config
    chosen = np.random.default_rng(seed).permutation(len(items))
    chosen = np.resize(chosen, min(CALIBRATION_VIEWS, 4 * len(items)))  # of few images several views each
    views: list[Tensor] = []
    for _, images in image_batches(items, 1, lambda i, e: None, order=chosen.tolist()):
        number = len(views)
        angle = c.angles[number % len(c.angles)]
        view = model.views_at(images.to(model.mean.device), number % len(c.granularities), [angle])[0, 0]
        views.append(view.cpu().contiguous())
    return views
