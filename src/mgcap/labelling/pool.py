"""All cells of one or several rasters that can be labelled, with their vectors, in memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
import torch.nn.functional as F
from scipy.spatial import KDTree
from torch import Tensor

from mgcap.errors import RasterError
from mgcap.geo.earth import ground_metres, on_earth, steps_metres, to_ground
from mgcap.geo.index import Index
from mgcap.geo.sources import crs_of, transform_of
from mgcap.inference.examples import FAR
from mgcap.inference.projection import shipped_projection
from mgcap.labelling.likeness import Likeness
from mgcap.typing import Array

#: Bytes of vectors that are kept in memory, at most.
MOST_BYTES = 8 << 30


@dataclass(frozen=True, eq=False)
class Pool:
    """Cells with data.

    Attributes:
        vectors: ``[n, p]`` in half precision, as indexes keep them.
        cells: ``[n, 3]``: the number of the raster, row and column.
        places: ``[n, 2]``: the middles of the cells in metres, or in pixels of rasters that have no place on the Earth.
        tile: Side of a tile in the unit of the places.
        mean: ``[p]``: what is added to vectors before directions are compared, see :mod:`mgcap.geo.nearest`.
    """

    vectors: Tensor
    cells: Array
    places: Array
    tile: float
    mean: Tensor

    def __len__(self) -> int:
        return len(self.cells)

    @cached_property
    def directions(self) -> Tensor:
        """``[n, p]`` of length one, in half precision."""
        every = [F.normalize(part.float() + self.mean, dim=1).half() for part in torch.split(self.vectors, 16_384)]
        return torch.cat(every) if every else self.vectors

    @cached_property
    def likeness(self) -> Likeness:
        """How like each other cells are."""
        return Likeness(self.vectors)

    @cached_property
    def _tree(self) -> KDTree:
        return KDTree(self.places)

    def near(self, cell: int) -> list[int]:
        """Cells whose tiles overlap that of a cell, with itself."""
        side = self.tile * (1 - 1e-6)  # tiles side by side do not overlap
        found: list[int] = self._tree.query_ball_point(self.places[cell], side, p=float("inf"))
        return found

    @cached_property
    def _numbers(self) -> dict[tuple[int, int, int], int]:
        return {(a, b, c): number for number, (a, b, c) in enumerate(self.cells.tolist())}

    def warm(self) -> None:
        """Make now what is made of all cells when it is first asked for, which takes a while for many of them."""
        _ = self.likeness.spread, self._tree, self._numbers

    def number(self, raster: int, row: int, column: int) -> int | None:
        """The number of a cell; None if it has no data."""
        return self._numbers.get((raster, row, column))


def open_pool(indexes: Sequence[Index]) -> Pool:
    """The cells of indexes.

    Args:
        indexes: Whole, of the same descriptors.

    Raises:
        RasterError: If they are too large, or cannot be compared.
    """
    first = indexes[0]
    length = int(first.group["vectors"].shape[2])  # type: ignore[union-attr]
    for index in indexes[1:]:
        if (index.about.descriptor, index.about.projection) != (first.about.descriptor, first.about.projection):
            raise RasterError(f"{index.name} has other descriptors than {first.name}; make both with the same model")
    vectors, cells, places, total = [], [], [], 0
    for number, index in enumerate(indexes):
        for (rows, columns), block in index.blocks():
            own = np.argwhere(block.valid > 0)
            if not len(own):
                continue
            total += 2 * length * len(own)
            if total > MOST_BYTES:
                raise RasterError(f"the vectors of these rasters take more than {MOST_BYTES >> 30} GiB of memory")
            vectors.append(torch.from_numpy(block.vectors[own[:, 0], own[:, 1]]))
            own = own + np.array((rows.start, columns.start))
            cells.append(np.column_stack((np.full(len(own), number), own)))
            places.append(places_of(index, own, number))
    if not cells:
        raise RasterError(f"{first.name} has no cell with data")
    projection = shipped_projection(first.about.projection)
    mean = torch.zeros(length)
    if projection is not None and projection.axes is not None and projection.mean is not None:
        mean = projection.axes @ projection.mean
    return Pool(torch.cat(vectors), np.concatenate(cells), np.concatenate(places), tile_side(first), mean)


def places_of(index: Index, cells: Array, number: int = 0) -> Array:
    """The middles ``[n, 2]`` of cells ``[n, 2]`` (row, column): metres on the Earth, or pixels of the raster.

    Args:
        index: That they are of.
        cells: Rows and columns.
        number: Of the raster: those without a place on the Earth lie far from each other.
    """
    width, height = index.plan.cell
    x, y = (cells[:, 1] + 0.5) * width, (cells[:, 0] + 0.5) * height
    crs = crs_of(index)
    if on_earth(crs):
        return ground_metres(crs, to_ground(transform_of(index), x, y))
    return np.stack((x + FAR * number, -y), -1)


def tile_side(index: Index) -> float:
    """The side of a tile in the unit of the places."""
    row, column = index.plan.grid.rows // 2, index.plan.grid.columns // 2
    width, height = index.plan.cell
    crs = crs_of(index)
    if on_earth(crs):  # not by the places, which jump between two degrees
        x, y = (column + np.array([0.5, 1.5, 0.5])) * width, (row + np.array([0.5, 0.5, 1.5])) * height
        width, height = steps_metres(crs, to_ground(transform_of(index), x, y))
    return float(index.plan.cells_in_tile * math.sqrt(width * height))
