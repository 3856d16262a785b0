"""The outlines of cells on the ground, as the file of labels keeps them: all in the coordinates of the first raster."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from mgcap.errors import DataError
from mgcap.geo.earth import to_ground
from mgcap.geo.index import Index
from mgcap.typing import Array

#: Bounds: left, lower, right and upper.
Box = tuple[float, float, float, float]


class Outlines:
    """Gives the outlines of cells.

    Args:
        names: Of the rasters.
        indexes: Theirs.
    """

    def __init__(self, names: Sequence[str], indexes: Sequence[Index]) -> None:
        self._indexes = dict(zip(names, indexes, strict=True))
        self.crs = indexes[0].about.crs or None

    @cached_property
    def _ways(self) -> dict[str, Any]:
        """From the coordinates of each raster to those of the first."""
        import pyproj

        ways: dict[str, Any] = {}
        for name, index in self._indexes.items():
            if self.crs and index.about.crs and index.about.crs != self.crs:
                ways[name] = pyproj.Transformer.from_crs(index.about.crs, self.crs, always_xy=True)
        return ways

    def corners(self, raster: str, row: int, col: int) -> Array:
        """Corners ``[4, 2]`` of a cell."""
        from rasterio.transform import Affine

        index = self._indexes.get(raster)
        if index is None:
            raise DataError(f"the raster {raster} was added meanwhile; start again to label it")
        left, top, right, lower = index.plan.grid.box(row, col)
        x, y = np.array((left, right, right, left), float), np.array((top, top, lower, lower), float)
        found = to_ground(Affine(*index.about.of_pixels), x, y)
        if way := self._ways.get(raster):
            found = np.stack(way.transform(found[:, 0], found[:, 1]), -1)
        return found

    def __call__(self, cell: tuple[str, int, int]) -> tuple[bytes, Box]:
        """The outline of a cell as WKB, and its bounds."""
        import shapely

        corners = self.corners(*cell)
        low, high = corners.min(0).tolist(), corners.max(0).tolist()
        return bytes(shapely.to_wkb(shapely.polygons(corners), byte_order=1)), (*low, *high)
