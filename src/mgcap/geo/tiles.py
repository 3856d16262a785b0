"""Tiles of a raster to probabilities and canonical angles."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from mgcap.engines.pipeline import images_together, local_features, prefetch
from mgcap.geo.opening import open_raster, reading
from mgcap.geo.plan import Plan
from mgcap.geo.raster import read_window
from mgcap.pooling import canonical_max, count_votes

if TYPE_CHECKING:
    from mgcap.model import MGCAP

Array = np.ndarray[Any, Any]


class Answers(NamedTuple):
    """What a chunk of n tiles shows; tiles with too little data have probabilities of NaN."""

    probabilities: Array  #: [n, K] float32
    angles: Array  #: [n] float32, degrees
    valid: Array  #: [n, k, k] float32: the part of each cell that has data


@torch.inference_mode()
def classify(model: MGCAP, batches: Iterator[tuple[list[int], Tensor]]) -> Iterator[tuple[list[int], Array, Array]]:
    """Probabilities and canonical angles of batches of images: ``(indices, [B, K], [B])``, one pass for both."""
    rotations = model.config.rotations
    parts: dict[int, list[Tensor]] = {}  # by granularity, the matrices [B, r, D, D] of this batch
    for piece in local_features(model, batches):
        parts.setdefault(piece.granularity, []).append(model.embed(piece.features))
        if not piece.last:
            continue
        matrices = [torch.cat(own, dim=1) for _, own in sorted(parts.items())]
        parts = {}
        pooled, winners = (list(part) for part in zip(*map(canonical_max, matrices), strict=True))
        if model.config.rotation_pooling != "max":
            pooled = [own.mean(1) for own in matrices]
        votes = count_votes(torch.stack(winners, 1), rotations).sum(1)
        logits = [model.head(model.descriptor_of(row[None]))[0] for row in torch.stack(pooled, 1)]  # each by itself
        angles = np.array(model.config.angles, np.float32)[votes.argmax(-1).cpu().numpy()]
        yield piece.indices, torch.stack(logits).double().softmax(1).float().cpu().numpy(), angles


def answer_chunk(model: MGCAP, plan: Plan, chunk: int) -> Answers:
    """Read and classify the tiles of a chunk. The same chunk gives the same numbers on one thread or many."""
    tiles = plan.tiles(chunk)
    k = plan.cells_in_tile
    answers = Answers(
        np.full((len(tiles), model.config.num_classes), np.nan, np.float32),
        np.zeros(len(tiles), np.float32),
        np.zeros((len(tiles), k, k), np.float32),
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

    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # sums over several threads depend on their number
    try:
        for indices, probabilities, angles in classify(model, prefetch(batches())):
            answers.probabilities[indices], answers.angles[indices] = probabilities, angles
    finally:
        torch.set_num_threads(threads)
    return answers


def _cell_shares(valid: Array, k: int) -> Array:
    rows, columns = (np.linspace(0, side, k + 1).round().astype(int) for side in valid.shape)
    return np.array(
        [[valid[rows[i] : rows[i + 1], columns[j] : columns[j + 1]].mean() for j in range(k)] for i in range(k)],
        np.float32,
    )
