"""Tiles to cells: overlapping tiles vote by probability, specks are merged into what surrounds them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from mgcap.geo.plan import Plan
from mgcap.geo.tiles import Answers
from mgcap.inference.unknown import NOTHING, Limits
from mgcap.typing import Array


@dataclass(frozen=True)
class ClassMap:
    """What each cell shows.

    Attributes:
        probabilities: ``[rows, columns, K]``, NaN where there is no data.
        classes: ``[rows, columns]``: the number of the class, K where it is unknown, -1 where there is no data.
        angles: ``[rows, columns]``: the canonical angle of the tile that is most confident of the class.
        distance: ``[rows, columns]``: how far each is from what the model was trained on, NaN where there is no data;
            None if the model does not know.
        limits: Where the unknown begins.
    """

    probabilities: Array
    classes: Array
    angles: Array
    distance: Array | None = None
    limits: Limits = NOTHING

    @property
    def probability(self) -> Array:
        """The probability ``[rows, columns]`` of the class that the map shows; NaN where there is none."""
        count = self.probabilities.shape[-1]
        chosen = self.classes.clip(0, count - 1)[..., None].astype(np.int64)
        found: Array = np.take_along_axis(self.probabilities, chosen, -1)[..., 0]
        return np.where(self.classes < count, found, np.nan)

    @property
    def unknown(self) -> Array:
        """Which cells are unknown."""
        found: Array = self.classes == self.probabilities.shape[-1]
        return found

    @property
    def far(self) -> Array:
        """Which cells are unlike all that the model was trained on."""
        if self.distance is None:
            return np.zeros(self.classes.shape, bool)
        found: Array = self.has_data & (np.nan_to_num(self.distance) > self.limits.distance)
        return found

    @property
    def has_data(self) -> Array:
        """Which cells show something."""
        found: Array = self.classes >= 0
        return found


def count_cells(plan: Plan, chunks: Iterable[Answers], sieve: int = 0, limits: Limits | None = None) -> ClassMap:
    """Let the tiles of all chunks, in order, vote.

    Args:
        plan: Where they lie.
        chunks: One after the other.
        sieve: Patches of fewer cells take the class of their largest neighbour.
        limits: Where the unknown begins; nothing is unknown without.
    """
    grid = plan.grid
    total: Array | None = None
    seen, distance = np.zeros((grid.rows, grid.columns), np.int32), np.zeros((grid.rows, grid.columns), np.float32)
    valid = np.zeros((grid.rows, grid.columns), np.float32)
    every: list[tuple[int, Answers]] = []
    number = 0
    for chunk in chunks:
        if total is None:
            total = np.zeros((grid.rows, grid.columns, chunk.probabilities.shape[1]), np.float32)
        every.append((number, chunk))
        for answer, share, far in zip(chunk.probabilities, chunk.valid, chunk.distances, strict=True):
            classified = not np.isnan(answer[0])
            for row, column, dy, dx in grid.cells_of(grid.tile(number)):
                valid[row, column] = max(valid[row, column], share[dy, dx])
                if classified:
                    total[row, column] += answer
                    distance[row, column] += far
                    seen[row, column] += 1
            number += 1
    assert total is not None
    with np.errstate(invalid="ignore", divide="ignore"):
        total /= seen[..., None]
        distance /= seen
    empty = (seen == 0) | (valid < plan.min_valid)
    total[empty], distance[empty] = np.nan, np.nan
    known = distance if np.isfinite(distance).any() else None
    limits = limits or NOTHING
    classes = classes_of(total, sieve, limits, known)
    return ClassMap(total, classes, _angles(plan, every, total.shape[-1], classes), known, limits)


def classes_of(
    probabilities: Array, sieve: int = 0, limits: Limits | None = None, distance: Array | None = None
) -> Array:
    """The most probable class of each cell ``[rows, columns]``, K where it is unknown, -1 where there is no data.

    Args:
        probabilities: ``[rows, columns, K]``, NaN where there is no data.
        sieve: Patches of fewer cells take the class of their largest neighbour.
        limits: Where the unknown begins; nothing is unknown without.
        distance: ``[rows, columns]``, if it is known.
    """
    empty = np.isnan(probabilities[..., 0])
    classes = np.where(empty, -1, np.nan_to_num(probabilities, nan=-1.0).argmax(-1)).astype(np.int16)
    if limits is not None:
        rows = probabilities[~empty]
        classes[~empty] = np.where(
            limits.unknown(rows, None if distance is None else distance[~empty]), rows.shape[-1], classes[~empty]
        )
    return _sieved(classes, sieve) if sieve > 1 and classes.size > 2 else classes


def _sieved(classes: Array, size: int) -> Array:
    from rasterio.features import sieve

    mask = classes >= 0
    merged: Array = sieve(classes, size=min(size, classes.size - 1), mask=mask, connectivity=4)
    return np.where(mask, merged, -1).astype(np.int16)


def _angles(plan: Plan, chunks: Iterable[tuple[int, Answers]], count: int, classes: Array) -> Array:
    grid = plan.grid
    highest = np.full(classes.shape, -1.0, np.float32)
    angles = np.full(classes.shape, np.nan, np.float32)
    for first, chunk in chunks:
        for offset, (answer, angle) in enumerate(zip(chunk.probabilities, chunk.angles, strict=True)):
            if np.isnan(answer[0]):
                continue
            for row, column, _, _ in grid.cells_of(grid.tile(first + offset)):
                own = answer[classes[row, column]] if classes[row, column] < count else answer.max()
                if classes[row, column] >= 0 and own > highest[row, column]:
                    highest[row, column], angles[row, column] = own, angle
    return angles
