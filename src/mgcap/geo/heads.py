"""A head applied to the cells of an index."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from mgcap.errors import RasterError
from mgcap.geo.index import Index
from mgcap.geo.plan import Plan
from mgcap.geo.votes import ClassMap, classes_of
from mgcap.inference.fingerprints import descriptor_fingerprint
from mgcap.inference.projection import projection_for
from mgcap.inference.sample import TrainingSample, reduce_rows
from mgcap.inference.unknown import NOTHING, Limits
from mgcap.runtime import Progress, silent
from mgcap.typing import Array

if TYPE_CHECKING:
    from mgcap.model import MGCAP


def coarser(index: Index, cells: int) -> Plan:
    """The plan of a map of an index, with ``cells`` along the side of a tile.

    Raises:
        RasterError: If these are not a divisor of those of the index.
    """
    plan = index.plan
    if cells < 1 or plan.cells_in_tile % cells:
        raise RasterError(
            f"{index.name} has {plan.cells_in_tile} cells along the side of a tile; `cells` takes a divisor of that"
        )
    times = plan.cells_in_tile // cells
    width, height = plan.cell
    return plan.model_copy(update={"cell": (times * width, times * height), "cells_in_tile": cells})


def classify_index(
    model: MGCAP,
    index: Index,
    plan: Plan,
    sieve: int = 0,
    sample: TrainingSample | None = None,
    limits: Limits | None = None,
    progress: Progress = silent,
) -> ClassMap:
    """What each cell shows; those of a coarser map have the mean probabilities of the cells of the index.

    Args:
        model: Its descriptors must be those of the index.
        index: Whole.
        plan: Of :func:`coarser`.
        sieve: Patches of fewer cells take the class of their largest neighbour.
        sample: Of what the model was trained on, to say how far each cell is from it.
        limits: Where the unknown begins; nothing is unknown without.
        progress: Where to report.

    Raises:
        RasterError: If the model has other descriptors.
    """
    if index.about.descriptor != descriptor_fingerprint(model):
        raise RasterError(f"{index.name} was made with other descriptors than this model's")
    weight, bias = projection_for(model).fold(model.head)
    shape = index.plan.grid.rows, index.plan.grid.columns
    probabilities = np.full((*shape, len(bias)), np.nan, np.float32)
    angles, distance = np.full(shape, np.nan, np.float32), np.full(shape, np.nan, np.float32)
    of_rotation = np.array(index.about.angles, np.float32)
    for place, cells in index.blocks(progress, "Classifying cells"):
        vectors = torch.from_numpy(cells.vectors).float()
        logits = vectors @ weight.T.float() + bias.float()
        known = cells.valid > 0
        if sample is not None:
            far = sample.distance(reduce_rows(model, vectors.flatten(0, 1))).reshape(known.shape).numpy()
            distance[place] = np.where(known, far, np.nan)
        probabilities[place] = np.where(known[..., None], logits.softmax(-1).numpy(), np.nan)
        angles[place] = np.where(known, of_rotation[cells.rotations.clip(max=len(of_rotation) - 1)], np.nan)
    times = index.plan.cells_in_tile // plan.cells_in_tile
    if times > 1:
        probabilities, angles, distance = _merged(probabilities, angles, distance, times, plan.min_valid)
    far_away, limits = None if sample is None else distance, limits or NOTHING
    return ClassMap(probabilities, classes_of(probabilities, sieve, limits, far_away), angles, far_away, limits)


def _merged(
    probabilities: Array, angles: Array, distance: Array, times: int, min_valid: float
) -> tuple[Array, Array, Array]:
    """The mean probabilities and distances of squares of cells, and the angle of the cell that is most confident.

    Of those squares of which ``min_valid`` of the cells have data.
    """
    rows, columns, count = probabilities.shape
    border = ((0, -rows % times), (0, -columns % times))
    padded = np.pad(probabilities, (*border, (0, 0)), constant_values=np.nan)
    high, wide = (side // times for side in padded.shape[:2])
    squares = padded.reshape(high, times, wide, times, count).swapaxes(1, 2).reshape(high, wide, -1, count)
    known = ~np.isnan(squares[..., 0])
    there = np.outer(*(np.add.reduceat(np.ones(n), range(0, n, times)) for n in (rows, columns)))  # of the raster
    with np.errstate(invalid="ignore"):
        mean = np.nansum(squares, 2) / known.sum(-1, keepdims=True)
    mean[known.sum(-1) / there < min_valid] = np.nan
    confident = np.where(known, np.nan_to_num(squares).max(-1), -1).argmax(-1)
    own, far = (
        np.pad(values, border, constant_values=np.nan)
        .reshape(high, times, wide, times)
        .swapaxes(1, 2)
        .reshape(high, wide, -1)
        for values in (angles, distance)
    )
    with np.errstate(invalid="ignore"):
        mean_distance = np.where(np.isnan(mean[..., 0]), np.nan, np.where(known, far, 0).sum(-1) / known.sum(-1))
    return mean, np.take_along_axis(own, confident[..., None], -1)[..., 0], mean_distance
