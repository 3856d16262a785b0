"""Where tiles lie on a raster, and which cells of the map they vote for.

The raster is cut into square cells; a tile is ``k`` cells wide, so tiles overlap by 1 - 1/k of their side and an inner
cell is seen by k x k tiles. A tile that would stick out of the raster is moved inwards, so that every pixel is seen and
no tile is padded; cells at the right and lower edge may be smaller.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Tile:
    """A window of pixels and the cells it votes for."""

    column: int
    row: int
    x: int
    y: int
    width: int
    height: int


@dataclass(frozen=True)
class Grid:
    """Cells and tiles on a raster.

    Args:
        width: Of the raster in pixels.
        height: Of the raster in pixels.
        cell_width: Of a cell in pixels.
        cell_height: Of a cell in pixels; differs from the width where pixels are not square.
        k: Cells along the side of a tile.
    """

    width: int
    height: int
    cell_width: int
    cell_height: int
    k: int = 1

    @classmethod
    def of(cls, width: int, height: int, tile: tuple[float, float], k: int) -> Grid:
        """The grid for tiles of about this size in pixels, ``k`` cells wide."""
        cell_width, cell_height = (max(1, round(side / k)) for side in tile)
        return cls(width, height, cell_width, cell_height, k)

    @property
    def columns(self) -> int:
        """Cells from left to right."""
        return math.ceil(self.width / self.cell_width)

    @property
    def rows(self) -> int:
        """Cells from top to bottom."""
        return math.ceil(self.height / self.cell_height)

    @property
    def tile_columns(self) -> int:
        """Tiles from left to right."""
        return max(1, self.columns - self.k + 1)

    @property
    def tile_rows(self) -> int:
        """Tiles from top to bottom."""
        return max(1, self.rows - self.k + 1)

    def __len__(self) -> int:
        return self.tile_columns * self.tile_rows

    def tile(self, number: int) -> Tile:
        """A tile by its number, row by row."""
        row, column = divmod(number, self.tile_columns)
        width = min(self.width, self.k * self.cell_width)
        height = min(self.height, self.k * self.cell_height)
        x = min(column * self.cell_width, self.width - width)
        y = min(row * self.cell_height, self.height - height)
        return Tile(column, row, x, y, width, height)

    def cells_of(self, tile: Tile) -> Iterator[tuple[int, int, int, int]]:
        """The cells that a tile votes for: (row, column) on the map, and (row, column) within the tile."""
        for dy in range(min(self.k, self.rows)):
            for dx in range(min(self.k, self.columns)):
                yield tile.row + dy, tile.column + dx, dy, dx

    def box(self, row: int, column: int) -> tuple[int, int, int, int]:
        """Left, top, right and lower edge of a cell in pixels, within the raster."""
        left, top = column * self.cell_width, row * self.cell_height
        return left, top, min(left + self.cell_width, self.width), min(top + self.cell_height, self.height)


def cells_in_tile(overlap: float) -> int:
    """How many cells a tile is wide, if tiles overlap by about this part of their side."""
    if not 0 <= overlap <= 0.9:
        raise ValueError(f"tiles overlap by 0 to 0.9 of their side, not {overlap}")
    return round(1 / (1 - overlap))
