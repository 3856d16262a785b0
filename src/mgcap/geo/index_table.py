"""An index as a table: a row for each of its cells, with its vector."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from mgcap.errors import RasterError
from mgcap.geo.cells import Place, cell_corners
from mgcap.geo.geoparquet import write_geoparquet
from mgcap.geo.index import Index
from mgcap.geo.sources import crs_of, transform_of
from mgcap.persistence.files import atomic_path
from mgcap.runtime import Progress, silent
from mgcap.typing import Array

#: Numbers of vectors that are written together.
TOGETHER = 5_000_000


def index_place(index: Index) -> Place:
    """Where the raster of an index lies."""
    changed = datetime.datetime.fromtimestamp(index.plan.changed[0] / 1e9, datetime.UTC)
    return Place(transform_of(index), crs_of(index), changed)


def write_index_table(path: Path, index: Index, progress: Progress = silent) -> None:
    """Write the cells that have data as GeoParquet, block by block.

    Args:
        path: A ``.parquet`` file.
        index: Whole.
        progress: Where to report.

    Raises:
        RasterError: If blocks of the index are missing, or none has data.
    """
    if missing := len(index.missing()):
        raise RasterError(
            f"{missing} of {index.plan.chunks} blocks of {index.name} are missing; finish it with mgcap index"
        )
    grid = index.plan.grid
    rows = 0
    with progress("Writing the table", grid.rows * grid.columns) as step, atomic_path(path) as temporary:

        def counted() -> Iterator[tuple[Array, dict[str, Any]]]:
            nonlocal rows
            for cells, shapes, columns in _tables(index):
                rows += len(shapes)
                if len(shapes):
                    yield shapes, columns
                step(cells)

        place = index_place(index)
        write_geoparquet(temporary, counted(), place.crs)
        if not rows:
            raise RasterError(f"{index.name} has no cell with data")


def _tables(index: Index) -> Iterator[tuple[int, Array, dict[str, Any]]]:
    """How many cells were looked at; polygons and columns of those that have data."""
    import pyarrow as pa
    import shapely

    grid, place, angles = index.plan.grid, index_place(index), np.array(index.about.angles, np.float64)
    for (rows, columns), cells in index.blocks():
        together = max(1, TOGETHER // cells.vectors[0].size)  # rows
        for top in range(0, rows.stop - rows.start, together):
            vectors, rotations, valid = (part[top : top + together] for part in cells)
            row, column = np.nonzero(valid)
            own = vectors[row, column].astype(np.float32)
            ends = np.arange(len(own) + 1, dtype=np.int32) * own.shape[1]
            places = np.stack((row + rows.start + top, column + columns.start), 1)
            yield (
                valid.size,
                shapely.polygons(cell_corners(grid, place, places)),
                {
                    "row": places[:, 0].astype(np.int32),
                    "column": places[:, 1].astype(np.int32),
                    "valid": (valid[row, column] / np.float32(255)).round(3),
                    "canonical_angle": angles[rotations[row, column].clip(max=len(angles) - 1)].round(1),
                    "vector": pa.ListArray.from_arrays(pa.array(ends), pa.array(own.ravel())),
                },
            )
