"""The cells of a finished map, read from its class raster."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mgcap.errors import RasterError, missing
from mgcap.geo.cells import TOGETHER, Place, cell_areas
from mgcap.geo.grid import Grid
from mgcap.geo.opening import file_state, open_raster, reading
from mgcap.geo.polygons import SUFFIXES
from mgcap.inference.unknown import UNKNOWN
from mgcap.typing import Array


@dataclass(frozen=True)
class CellMap:
    """A map as others read it.

    Attributes:
        path: Its class raster.
        classes: Names of the classes; the last one may be ``unknown``.
        numbers: ``[rows, columns]``: the class of each cell, -1 where there is no data.
        grid: Cells on the raster that was mapped.
        place: Where that lies.
    """

    path: Path
    classes: tuple[str, ...]
    numbers: Array
    grid: Grid
    place: Place

    @property
    def unknown(self) -> int | None:
        """The number of what is unknown, if the map says so of cells."""
        return self.classes.index(UNKNOWN) if UNKNOWN in self.classes else None

    def areas(self, cells: Array) -> Array:
        """Of cells ``[n, 2]`` (row, column)."""
        parts = [cell_areas(self.grid, self.place, cells[i : i + TOGETHER]) for i in range(0, len(cells), TOGETHER)]
        return np.concatenate(parts) if parts else np.zeros(0)

    def class_areas(self) -> Array:
        """Of each class."""
        cells = np.argwhere(self.numbers >= 0)
        return np.bincount(self.numbers[tuple(cells.T)], self.areas(cells), len(self.classes))

    def to_pixels(self, points: Array) -> Array:
        """Places ``[n, 2]`` in pixels of the raster that was mapped; NaN stays NaN."""
        t = ~self.place.transform
        x, y = points[:, 0], points[:, 1]
        with np.errstate(invalid="ignore"):  # what cannot be projected is infinite
            return np.stack((t.a * x + t.b * y + t.c, t.d * x + t.e * y + t.f), -1)


def read_cells(path: str | Path) -> CellMap:
    """Read a map.

    Args:
        path: The class raster that ``mgcap map`` wrote, or the polygons beside it.
    """
    path = Path(path).expanduser()
    if not path.is_file():
        raise RasterError(missing("map", path))
    raster = path.with_suffix(".tif") if path.suffix.lower() in SUFFIXES else path
    if not raster.is_file():
        raise RasterError(f"{path} has no class raster {raster.name} beside it")
    with open_raster(raster, smallest=1) as dataset, reading(raster):
        tags = dataset.tags()
        names = [tags.get(f"CLASS_{number}") for number in range(1, 1 << 16)]
        classes = tuple(name for name in names if name is not None)
        if not classes or dataset.dtypes[0] not in ("uint8", "uint16"):
            raise RasterError(f"{raster} is not the class raster of a map, which mgcap map writes beside the polygons")
        numbers = dataset.read(1).astype(np.int32) - 1
        size = _pair(tags.get("RASTER_SIZE"), (dataset.width, dataset.height))
        cell = _pair(tags.get("CELL_SIZE"), (1, 1))
        grid = Grid(*size, *cell)
        if (grid.rows, grid.columns) != numbers.shape or numbers.max() >= len(classes):
            raise RasterError(f"{raster} is damaged: its cells are not those that it says it has")
        t, (wide, high) = dataset.transform, cell
        transform = type(t)(t.a / wide, t.b / high, t.c, t.d / wide, t.e / high, t.f)
        changed = datetime.datetime.fromtimestamp(file_state(raster)[0] / 1e9, datetime.UTC)
        return CellMap(raster, classes, numbers, grid, Place(transform, dataset.crs, changed))


def _pair(text: str | None, default: tuple[int, int]) -> tuple[int, int]:
    """Two numbers of a tag."""
    try:
        first, second = map(int, (text or "").split())
    except ValueError:
        return default
    return (first, second) if min(first, second) > 0 else default
