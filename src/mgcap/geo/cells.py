"""The cells of a class map: where they lie, how large they are, and what a table says of them."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mgcap.errors import RasterError
from mgcap.geo.earth import on_earth, plane_areas, square_metres, to_ground
from mgcap.geo.grid import Grid
from mgcap.geo.votes import ClassMap
from mgcap.names import human_names
from mgcap.report.colours import class_colours
from mgcap.typing import Array

#: Polygons that are made and written together.
TOGETHER = 20_000


@dataclass(frozen=True)
class Place:
    """Where a raster lies: its affine map from pixels to coordinates, and what these mean (perhaps nothing)."""

    transform: Any
    crs: Any
    changed: datetime.datetime  #: of the raster; results carry this date, so that the same input gives the same bytes

    @property
    def unit(self) -> str:
        """Name of the column with areas: square metres, or the square of the coordinates' unit."""
        return "area_m2" if on_earth(self.crs) else "area_units2"


def cell_corners(grid: Grid, place: Place, cells: Array) -> Array:
    """Corners ``[n, 4, 2]`` of cells ``[n, 2]`` (row, column) in the raster's coordinates."""
    top, left = (cells * (grid.cell_height, grid.cell_width)).astype(np.float64).T
    right = np.minimum(left + grid.cell_width, grid.width)
    lower = np.minimum(top + grid.cell_height, grid.height)
    x = np.stack((left, right, right, left), 1)
    y = np.stack((top, top, lower, lower), 1)
    return to_ground(place.transform, x, y)


def cell_areas(grid: Grid, place: Place, cells: Array) -> Array:
    """Areas of cells: square metres on the ground, or square units of the raster if it does not say where it lies."""
    corners = cell_corners(grid, place, cells)
    areas = square_metres(place.crs, corners) if on_earth(place.crs) else plane_areas(corners)
    if not ((areas > 0) & np.isfinite(areas)).all():
        raise RasterError("some cells of the map have no area by the raster's coordinates")
    return areas


def rounded_areas(areas: Array) -> Array:
    """Two digits, or more where small ones would be 0."""
    rounded: Array = areas.round(2 + max(0, int(np.ceil(-np.log10(areas.min())))))
    return rounded


def polygon_tables(
    found: ClassMap, grid: Grid, place: Place, classes: Sequence[str]
) -> Iterator[tuple[Array, dict[str, Array]]]:
    """Corners and columns of the cells that show something, a bounded number at once."""
    cells = np.argwhere(found.has_data)
    colours, labels, names = (
        np.array(each, object) for each in (class_colours(classes), classes, human_names(classes))
    )
    for start in range(0, len(cells), TOGETHER):
        some = cells[start : start + TOGETHER]
        rows, columns = some.T
        chosen = found.classes[rows, columns]
        p = found.probabilities[rows, columns]
        likely = np.argsort(-p, axis=1, kind="stable")[:, :3]
        top = [", ".join(f"{names[k]} {row[k]:.3f}" for k in best) for best, row in zip(likely, p, strict=True)]
        yield (
            cell_corners(grid, place, some),
            {
                "class": names[chosen],
                "label": labels[chosen],
                "probability": shown_probability(p, chosen).astype(np.float64).round(4),
                "top3": np.array(top, object),
                "colour": colours[chosen],
                **_distances(found, rows, columns),
                "canonical_angle": found.angles[rows, columns].astype(np.float64).round(1),
                place.unit: rounded_areas(cell_areas(grid, place, some)),
                "row": rows.astype(np.int32),
                "column": columns.astype(np.int32),
            },
        )


def _distances(found: ClassMap, rows: Array, columns: Array) -> dict[str, Array]:
    """How far cells are from the training images, if that is known."""
    if found.distance is None:
        return {}
    return {"distance": found.distance[rows, columns].astype(np.float64).round(4)}


def shown_probability(probabilities: Array, chosen: Array) -> Array:
    """The probability ``[n]`` of the class that each cell shows; NaN for unknown, which has none."""
    known = chosen < probabilities.shape[1]
    own = np.take_along_axis(probabilities, np.where(known, chosen, 0)[:, None].astype(np.int64), 1)[:, 0]
    return np.where(known, own, np.nan)
