"""A class map as polygons: GeoPackage with styles inside, GeoJSON or GeoParquet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from mgcap.errors import RasterError
from mgcap.geo.cells import Place, cell_areas, cell_corners, polygon_tables
from mgcap.geo.dissolve import patch_tables
from mgcap.geo.geojson import write_geojson
from mgcap.geo.geopackage import Layer, write_geopackage
from mgcap.geo.geoparquet import write_geoparquet
from mgcap.geo.grid import Grid
from mgcap.geo.rings import outlines
from mgcap.geo.styles import STRONG, class_style, write_styles
from mgcap.geo.votes import ClassMap
from mgcap.persistence.files import atomic_path
from mgcap.typing import Array

__all__ = ["SUFFIXES", "Place", "cell_areas", "cell_corners", "check_target", "write_polygons"]

#: Layers of a GeoPackage: cells, and those of a class dissolved.
CELLS, DISSOLVED = "scenes", "classes"
SUFFIXES = (".gpkg", ".geojson", ".json", ".parquet")


def check_target(path: Path) -> None:
    """See that polygons can be written under a name.

    Raises:
        RasterError: If its suffix is none that we know.
    """
    if path.suffix.lower() not in SUFFIXES:
        raise RasterError(f"`out` takes a .gpkg or .geojson file, or a .parquet one, not {path}")


def write_polygons(
    path: Path, found: ClassMap, grid: Grid, place: Place, classes: Sequence[str], *, dissolve: bool = False
) -> list[Path]:
    """Write polygons in the format that the file's name asks for, each file whole or not at all.

    Args:
        path: The file; styles go beside it.
        found: What each cell shows.
        grid: The cells.
        place: Where they lie.
        classes: Labels of the classes.
        dissolve: Write cells that touch and show the same as one polygon too: in another layer of a GeoPackage,
            and in a file beside the others.

    Returns:
        The files of polygons, and then those of styles.
    """
    check_target(path)
    styles = {
        CELLS: class_style(CELLS, "scene classes", classes),
        DISSOLVED: class_style(DISSOLVED, "scene classes, dissolved", classes, STRONG),
    }
    files = {CELLS: path, DISSOLVED: path.with_suffix(f".classes{path.suffix}")}
    layers = [CELLS, DISSOLVED] if dissolve else [CELLS]
    beside = [file for name in layers for file in write_styles(files[name], styles[name])]
    kind = path.suffix.lower()
    if kind == ".gpkg":
        tables = [_tables(name, found, grid, place, classes, degrees=False) for name in layers]
        made = [Layer(name, own, styles[name]) for name, own in zip(layers, tables, strict=True)]
        write_geopackage(path, made, place.crs, place.changed)
        return [path, *beside]
    for name in layers:
        with atomic_path(files[name]) as temporary:
            if kind == ".parquet":
                write_geoparquet(temporary, _tables(name, found, grid, place, classes, degrees=False), place.crs)
            else:
                write_geojson(temporary, name, _tables(name, found, grid, place, classes, degrees=True))
    return [*(files[name] for name in layers), *beside]


def _tables(
    layer: str, found: ClassMap, grid: Grid, place: Place, classes: Sequence[str], degrees: bool
) -> Iterator[tuple[Any, dict[str, Array]]]:
    """Geometries and columns of a layer, part by part."""
    import shapely

    if layer == DISSOLVED:
        yield from patch_tables(found, grid, place, classes, degrees)
    else:
        for corners, columns in polygon_tables(found, grid, place, classes):
            yield outlines(place.crs, corners) if degrees else shapely.polygons(corners), columns
