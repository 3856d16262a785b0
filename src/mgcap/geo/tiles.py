"""Tiles of a raster to probabilities and canonical angles."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from mgcap.geo.opening import open_raster, reading
from mgcap.geo.plan import Plan
from mgcap.geo.raster import read_window
from mgcap.inference.forward import answer, walk
from mgcap.inference.pipeline import images_together, prefetch, stream_features
from mgcap.inference.sample import TrainingSample, reduce_rows
from mgcap.threads import one_thread
from mgcap.typing import Array

if TYPE_CHECKING:
    from mgcap.inference.engines import Engine
    from mgcap.model import MGCAP


class Answers(NamedTuple):
    """What a chunk of n tiles shows; tiles with too little data have probabilities and distances of NaN."""

    probabilities: Array  #: [n, K] float32
    angles: Array  #: [n] float32, degrees
    valid: Array  #: [n, k, k] float32: the part of each cell that has data
    distances: Array  #: [n] float32: from what the model was trained on; NaN if it does not know


@torch.inference_mode()
def classify(
    model: MGCAP,
    engine: Engine | None,
    batches: Iterator[tuple[list[int], Tensor]],
    sample: TrainingSample | None = None,
) -> Iterator[tuple[int, Array, float, float]]:
    """Number, probabilities ``[K]``, canonical angle and distance of each image; one pass for all."""
    for index, seen in walk(model, stream_features(model, batches, engine), winners=True):
        found = answer(model, seen)
        assert found.votes is not None
        angle = model.config.angles[int(found.votes[0].sum(0).argmax())]
        far = float("nan")
        if sample is not None:
            far = float(sample.distance(reduce_rows(model, found.descriptors.float().cpu()))[0])
        yield index, found.probabilities[0].float().cpu().numpy(), angle, far


def answer_chunk(
    model: MGCAP, engine: Engine | None, plan: Plan, chunk: int, sample: TrainingSample | None = None
) -> Answers:
    """Read and classify the tiles of a chunk. The same chunk gives the same numbers on one thread or many."""
    tiles = plan.tiles(chunk)
    k = plan.cells_in_tile
    answers = Answers(
        np.full((len(tiles), model.config.num_classes), np.nan, np.float32),
        np.zeros(len(tiles), np.float32),
        np.zeros((len(tiles), k, k), np.float32),
        np.full(len(tiles), np.nan, np.float32),
    )
    together = images_together(model.config.rotations, model.mean.device.type)

    def batches() -> Iterator[tuple[list[int], Tensor]]:
        indices: list[int] = []
        images: list[Tensor] = []
        with open_raster(plan.raster, plan.allow_vrt) as dataset, reading(plan.raster):
            for number, tile in enumerate(tiles):
                box = (tile.x, tile.y, tile.width, tile.height)
                pixels, valid = read_window(dataset, plan.look, *box, plan.shape)
                answers.valid[number] = _cell_shares(valid, k)
                if valid.mean() < plan.min_valid or not valid.any():
                    continue
                indices.append(number)
                images.append(torch.from_numpy(pixels).permute(2, 0, 1))
                if len(images) == together:
                    yield indices, torch.stack(images)
                    indices, images = [], []
        if images:
            yield indices, torch.stack(images)

    with one_thread():
        for number, *found in classify(model, engine, prefetch(batches()), sample):
            answers.probabilities[number], answers.angles[number], answers.distances[number] = found
    return answers


def _cell_shares(valid: Array, k: int) -> Array:
    rows, columns = (np.linspace(0, side, k + 1).round().astype(int) for side in valid.shape)
    return np.array(
        [[valid[rows[i] : rows[i + 1], columns[j] : columns[j + 1]].mean() for j in range(k)] for i in range(k)],
        np.float32,
    )
