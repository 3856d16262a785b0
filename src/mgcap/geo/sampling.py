"""Random points on a map, some in each class, to look up what is there."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mgcap.errors import DataError, RasterError
from mgcap.evaluation.assessment import allocate
from mgcap.geo.cellmap import CellMap
from mgcap.geo.earth import to_ground
from mgcap.geo.geopackage import Layer, write_geopackage
from mgcap.geo.reference import STANDS_FOR, STRATUM
from mgcap.typing import Array

#: The layer of the points.
LAYER = "points"
#: The least number of points of a class that Olofsson et al. (2014) advise.
PER_CLASS = 50


@dataclass(frozen=True)
class Sample:
    """Points in random order.

    Attributes:
        points: ``[n, 2]``: coordinates of the map.
        strata: The class of each on the map.
        counts: Points of each class.
        areas: Of each class.
    """

    points: Array
    strata: Array
    counts: Array
    areas: Array


def draw_points(cells: CellMap, per_class: int | None = None, total: int | None = None, seed: int = 0) -> Sample:
    """Draw cells at random, by class, and a place within each.

    Args:
        cells: The map.
        per_class: Points of each class, or the least if there is a total; by default 50, or what half of a smaller
            total allows.
        total: All points; what is left of it goes to the classes by their areas.
        seed: The same seed gives the same points.
    """
    places = np.argwhere(cells.numbers >= 0)
    if not len(places):
        raise RasterError(f"{cells.path} has no cell with data")
    numbers, sizes = cells.numbers[tuple(places.T)], cells.areas(places)
    count = len(cells.classes)
    units, areas = np.bincount(numbers, minlength=count), np.bincount(numbers, sizes, count)
    present = int((units > 0).sum())
    least = per_class or (PER_CLASS if total is None else max(2, min(PER_CLASS, total // (2 * present))))
    needed = int(np.minimum(units, least).sum())
    if total is not None and total < needed:
        raise DataError(
            f"{total} points are too few for {least} of each of {present} classes: `total` takes {needed} or more"
        )
    counts = allocate(areas, units, least, total)
    rng = np.random.default_rng(seed)
    chosen = np.concatenate([_draw(rng, np.flatnonzero(numbers == k), sizes, int(counts[k])) for k in range(count)])
    chosen = rng.permutation(chosen)
    grid, within = cells.grid, rng.random((len(chosen), 2))
    size = np.array((grid.cell_width, grid.cell_height))
    first = places[chosen][:, ::-1] * size
    last = np.minimum(first + size, (grid.width, grid.height))
    x, y = (first + within * (last - first)).T
    return Sample(to_ground(cells.place.transform, x, y), numbers[chosen], counts, areas)


def _draw(rng: np.random.Generator, own: Array, sizes: Array, count: int) -> Array:
    """Cells by their areas, none twice."""
    if not count:
        return own[:0]
    return rng.choice(own, count, replace=False, p=sizes[own] / sizes[own].sum(), shuffle=False)


def write_points(path: Path, sample: Sample, cells: CellMap) -> None:
    """Write points to a GeoPackage, with an empty field ``class`` to be filled in."""
    import shapely

    if path.suffix.lower() != ".gpkg":
        raise RasterError(f"`out` takes a .gpkg file, not {path}")
    stands_for = (sample.areas / np.maximum(sample.counts, 1))[sample.strata]
    fields = {
        "id": np.arange(1, len(sample.points) + 1, dtype=np.int32),
        STRATUM: np.array(cells.classes, object)[sample.strata],
        STANDS_FOR: stands_for,
        "class": np.full(len(sample.points), None, object),
    }
    layer = Layer(LAYER, [(shapely.points(sample.points), fields)], kind="Point")
    write_geopackage(path, [layer], cells.place.crs, cells.place.changed)
