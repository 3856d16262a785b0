"""The files of a class map: polygons, rasters, picture and table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mgcap.geo.cells import Place
from mgcap.geo.pictures import (
    class_areas,
    write_areas,
    write_class_raster,
    write_distance_raster,
    write_probability_raster,
    write_quick_look,
)
from mgcap.geo.plan import Plan
from mgcap.geo.polygons import write_polygons
from mgcap.geo.votes import ClassMap
from mgcap.typing import Array


def write_map(
    out: Path, plan: Plan, found: ClassMap, place: Place, classes: Sequence[str], *, dissolve: bool = False
) -> tuple[Array, list[Path]]:
    """Write all files of a map; the areas of its classes, and the files' names."""
    grid = plan.grid
    areas, cells = class_areas(found, grid, place, len(classes))
    names = {kind: out.with_suffix(kind) for kind in (".tif", ".probability.tif", ".png", ".csv")}
    polygons = write_polygons(out, found, grid, place, classes, dissolve=dissolve)
    write_class_raster(names[".tif"], found, grid, place, classes)
    write_probability_raster(names[".probability.tif"], found, grid, place, classes)
    write_quick_look(names[".png"], plan, found, classes, areas)
    write_areas(names[".csv"], classes, areas, cells, place.unit)
    more = polygons[1:]
    if found.distance is not None:
        more.append(out.with_suffix(".distance.tif"))
        write_distance_raster(more[-1], found, grid, place)
    return areas, [out, *names.values(), *more]
