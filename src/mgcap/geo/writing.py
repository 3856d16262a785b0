"""The files of a class map: polygons, rasters, picture and table."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from mgcap.errors import RasterError
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
from mgcap.persistence.header import one_line
from mgcap.typing import Array

#: What a map may have besides: styles of dissolved polygons, distances, what unknown cells are like, and how it did.
OPTIONAL = (
    ".classes.qml", ".classes.sld", ".distance.tif", ".unknown.csv", ".unknown.png",
    ".assessment.html", ".assessment.json", ".assessment.csv", ".confusion.csv",
)  # fmt: skip
#: Pictures and rasters of a map.
IMAGES = (".tif", ".probability.tif", ".distance.tif", ".png", ".unknown.png")


def check_outputs(out: Path, raster: Path) -> None:
    """See that no picture of a map takes the place of the raster.

    Raises:
        RasterError: If one does.
    """
    if any(out.with_suffix(kind).resolve() == raster.resolve() for kind in IMAGES):
        raise RasterError(f"the map would overwrite {raster}; give `out` another name")


def remove_old(out: Path, files: Sequence[Path]) -> None:
    """Remove what an earlier map of the same name had and this one has not, as it would seem to belong to it."""
    dissolved = () if out.suffix.lower() == ".gpkg" else (f".classes{out.suffix}",)  # there it is a layer
    for kind in (*OPTIONAL, *dissolved):
        if (file := out.with_suffix(kind)) not in files:
            file.unlink(missing_ok=True)


#: A disk with fewer bytes is full.
FULL = 1 << 20


@contextmanager
def writing(out: Path) -> Iterator[None]:
    """Turn what is said of files that cannot be written into one sentence."""
    from pyogrio.errors import DataLayerError, DataSourceError, FeatureError
    from rasterio._err import CPLE_BaseError
    from rasterio.errors import RasterioError

    try:
        yield
    except Exception as error:  # GDAL and SQLite have many words for a full disk
        if shutil.disk_usage(out.parent).free < FULL:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(out)) from error
        if isinstance(error, DataLayerError | DataSourceError | FeatureError | RasterioError | CPLE_BaseError):
            raise RasterError(f"{out} and the files beside it cannot be written: {one_line(error)}") from error
        raise


def write_map(
    out: Path, plan: Plan, found: ClassMap, place: Place, classes: Sequence[str], *, dissolve: bool = False
) -> tuple[Array, list[Path]]:
    """Write all files of a map; the areas of its classes, and the files' names."""
    grid = plan.grid
    areas, cells = class_areas(found, grid, place, len(classes))
    names = {kind: out.with_suffix(kind) for kind in (".tif", ".probability.tif", ".png", ".csv")}
    more = write_polygons(out, found, grid, place, classes, dissolve=dissolve)[1:]
    more.append(write_class_raster(names[".tif"], found, grid, place, classes))
    write_probability_raster(names[".probability.tif"], found, grid, place, classes)
    write_quick_look(names[".png"], plan, found, classes, areas)
    write_areas(names[".csv"], classes, areas, cells, place.unit)
    if found.distance is not None:
        more.append(out.with_suffix(".distance.tif"))
        write_distance_raster(more[-1], found, grid, place)
    return areas, [out, *names.values(), *more]
