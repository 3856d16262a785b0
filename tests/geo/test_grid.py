from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mgcap.geo.grid import Grid, cells_in_tile

sides = st.integers(1, 120)


@given(sides, sides, st.integers(1, 80), st.integers(1, 80), st.integers(1, 4))
def test_tiles_cover_every_pixel_and_stay_inside(width: int, height: int, cw: int, ch: int, k: int) -> None:
    grid = Grid(width, height, cw, ch, k)
    seen = np.zeros((height, width), bool)
    voted = np.zeros((grid.rows, grid.columns), int)
    for number in range(len(grid)):
        tile = grid.tile(number)
        assert tile.x >= 0 and tile.y >= 0
        assert tile.x + tile.width <= width and tile.y + tile.height <= height
        seen[tile.y : tile.y + tile.height, tile.x : tile.x + tile.width] = True
        for row, column, _, _ in grid.cells_of(tile):
            voted[row, column] += 1
    assert seen.all()
    assert (voted >= 1).all()
    assert voted.max() <= k * k


@given(sides, sides, st.integers(1, 80), st.integers(1, 80))
def test_cells_tile_the_raster_without_gap_or_overlap(width: int, height: int, cw: int, ch: int) -> None:
    grid = Grid(width, height, cw, ch)
    count = np.zeros((height, width), int)
    for row in range(grid.rows):
        for column in range(grid.columns):
            left, top, right, lower = grid.box(row, column)
            count[top:lower, left:right] += 1
    assert (count == 1).all()


@pytest.mark.parametrize(("overlap", "cells"), [(0, 1), (0.5, 2), (0.6, 2), (2 / 3, 3), (0.75, 4), (0.9, 10)])
def test_overlap_is_a_number_of_cells(overlap: float, cells: int) -> None:
    assert cells_in_tile(overlap) == cells


def test_overlap_has_bounds() -> None:
    with pytest.raises(ValueError, match=r"0 to 0\.9"):
        cells_in_tile(1.0)
