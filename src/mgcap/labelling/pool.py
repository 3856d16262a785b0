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
from mgcap.geo.index import Index
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
        places: ``[n, 2]``: the middles of the cells in pixels of their raster, times ``metres``; rasters lie far apart.
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
        return {(int(a), int(b), int(c)): number for number, (a, b, c) in enumerate(self.cells)}

    def number(self, raster: int, row: int, column: int) -> int | None:
        """The number of a cell; None if it has no data."""
        return self._numbers.get((raster, row, column))


def open_pool(indexes: Sequence[Index], metres: Sequence[tuple[float, float] | None] | None = None) -> Pool:
    """The cells of indexes.

    Args:
        indexes: Whole, of the same descriptors.
        metres: For each, width and height of a pixel on the ground if they are known; places are in pixels without.

    Raises:
        RasterError: If they are too large, or cannot be compared.
    """
    first = indexes[0]
    length = int(first.group["vectors"].shape[2])  # type: ignore[union-attr]
    for index in indexes[1:]:
        if (index.about.descriptor, index.about.projection) != (first.about.descriptor, first.about.projection):
            raise RasterError(f"{index.name} has other descriptors than {first.name}; make both with the same model")
    known = metres if metres is not None and all(m is not None for m in metres) else [None] * len(indexes)
    vectors, cells, places, offset = [], [], [], 0.0
    total = 0
    for number, (index, size) in enumerate(zip(indexes, known, strict=True)):
        wide, high = size or (1.0, 1.0)
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
            x, y = (own[:, 1] + 0.5) * index.plan.cell[0], (own[:, 0] + 0.5) * index.plan.cell[1]
            places.append(np.stack((offset + x * wide, y * high), -1))
        offset += 1e3 * max(index.plan.size) * max(wide, high)
    if not cells:
        raise RasterError(f"{first.name} has no cell with data")
    wide, high = known[0] or (1.0, 1.0)
    projection = shipped_projection(first.about.projection)
    mean = torch.zeros(length)
    if projection is not None and projection.axes is not None and projection.mean is not None:
        mean = projection.axes @ projection.mean
    tile = math.sqrt(first.plan.tile[0] * wide * first.plan.tile[1] * high)
    return Pool(torch.cat(vectors), np.concatenate(cells), np.concatenate(places), tile, mean)
