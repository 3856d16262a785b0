"""A class map as polygons: GeoPackage with a QGIS style inside, or GeoJSON."""

from __future__ import annotations

import datetime
import json
import sqlite3
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.sax.saxutils import quoteattr

import numpy as np

from mgcap.errors import RasterError
from mgcap.geo.earth import on_earth, plane_areas, square_metres, to_ground
from mgcap.geo.grid import Grid
from mgcap.geo.rings import outlines
from mgcap.geo.votes import ClassMap
from mgcap.persistence.files import atomic_path
from mgcap.report.colours import class_colours, rgb
from mgcap.typing import Array

#: The layer of a GeoPackage.
LAYER = "scenes"
#: Polygons that are made and written together.
TOGETHER = 20_000
SUFFIXES = (".gpkg", ".geojson", ".json")


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


def polygon_tables(
    found: ClassMap, grid: Grid, place: Place, classes: Sequence[str]
) -> Iterator[tuple[Array, dict[str, Array]]]:
    """Corners and columns of the cells that show something, a bounded number at once."""
    cells = np.argwhere(found.has_data)
    colours = np.array(class_colours(classes), object)
    names = np.array(classes, object)
    for start in range(0, len(cells), TOGETHER):
        some = cells[start : start + TOGETHER]
        rows, columns = some.T
        chosen = found.classes[rows, columns]
        p = found.probabilities[rows, columns]
        likely = np.argsort(-p, axis=1, kind="stable")[:, :3]
        top = [", ".join(f"{names[k]} {row[k]:.3f}" for k in best) for best, row in zip(likely, p, strict=True)]
        areas = cell_areas(grid, place, some)
        yield (
            cell_corners(grid, place, some),
            {
                "class": names[chosen],
                "probability": p[np.arange(len(some)), chosen].astype(np.float64).round(4),
                "top3": np.array(top, object),
                "colour": colours[chosen],
                "canonical_angle": found.angles[rows, columns].astype(np.float64).round(1),
                place.unit: areas.round(2 + max(0, int(np.ceil(-np.log10(areas.min()))))),  # small ones are not 0
                "row": rows.astype(np.int32),
                "column": columns.astype(np.int32),
            },
        )


def write_polygons(path: Path, found: ClassMap, grid: Grid, place: Place, classes: Sequence[str]) -> None:
    """Write polygons in the format that the file's name asks for, whole or not at all."""
    if path.suffix.lower() not in SUFFIXES:
        raise RasterError(f"polygons are written to .gpkg or .geojson files, not to {path}")
    tables = polygon_tables(found, grid, place, classes)
    with atomic_path(path) as temporary:
        if path.suffix.lower() == ".gpkg":
            _write_geopackage(temporary, tables, place, classes)
        else:
            _write_geojson(temporary, tables, place)


def _write_geopackage(path: Path, tables: Iterator[Any], place: Place, classes: Sequence[str]) -> None:
    import pyogrio
    import shapely

    stamp = place.changed.strftime("%Y-%m-%dT%H:%M:%S.000Z")
    pyogrio.set_gdal_config_options({"OGR_CURRENT_DATE": stamp})
    inner = path.with_name(path.name + ".gpkg")  # GDAL goes by the name
    try:
        warnings.filterwarnings("ignore", "'crs' was not provided", UserWarning)
        for number, (corners, columns) in enumerate(tables):
            pyogrio.raw.write(
                inner,
                shapely.to_wkb(shapely.polygons(corners)),
                list(columns.values()),
                list(columns),
                layer=LAYER,
                driver="GPKG",
                geometry_type="Polygon",
                crs=place.crs.to_wkt() if place.crs is not None else None,
                append=number > 0,
            )
        _add_style(inner, classes, stamp)
        inner.replace(path)
    finally:
        inner.unlink(missing_ok=True)
        pyogrio.set_gdal_config_options({"OGR_CURRENT_DATE": None})


def _write_geojson(path: Path, tables: Iterator[Any], place: Place) -> None:
    """One feature per line, in degrees as the format wants it; a raster without a place keeps its own coordinates."""
    with path.open("w", encoding="utf-8") as file:
        file.write(f'{{"type": "FeatureCollection", "name": "{LAYER}", "features": [')
        first = True
        for corners, columns in tables:
            for number, shape in enumerate(outlines(place.crs, corners)):
                values = {name: _plain(column[number]) for name, column in columns.items()}
                feature = {"type": "Feature", "properties": values, "geometry": shape}
                file.write(("" if first else ",") + "\n" + json.dumps(feature, ensure_ascii=False))
                first = False
        file.write("\n]}\n")


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _add_style(path: Path, classes: Sequence[str], stamp: str) -> None:
    """Put a QGIS style into a GeoPackage, in the table where QGIS looks for it."""
    with sqlite3.connect(path) as database:
        database.execute(
            "CREATE TABLE layer_styles (id INTEGER PRIMARY KEY AUTOINCREMENT NOT NULL, f_table_catalog TEXT(256), "
            "f_table_schema TEXT(256), f_table_name TEXT(256), f_geometry_column TEXT(256), styleName TEXT(30), "
            "styleQML TEXT, styleSLD TEXT, useAsDefault BOOLEAN, description TEXT, owner TEXT(30), ui TEXT(30), "
            "update_time DATETIME DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ','now')))"
        )
        database.execute(
            "INSERT INTO gpkg_contents (table_name, data_type, identifier, last_change, srs_id) "
            "VALUES ('layer_styles', 'attributes', 'layer_styles', ?, 0)",
            (stamp,),
        )
        database.execute(
            "INSERT INTO layer_styles (f_table_catalog, f_table_schema, f_table_name, f_geometry_column, styleName, "
            "styleQML, styleSLD, useAsDefault, description, owner, update_time) "
            "VALUES ('', '', ?, 'geom', 'classes', ?, '', 1, 'scene classes', '', ?)",
            (LAYER, qgis_style(classes), stamp),
        )
    database.close()


def qgis_style(classes: Sequence[str]) -> str:
    """A QGIS style (QML): one colour per class, half transparent."""
    categories, symbols = [], []
    for number, (name, colour) in enumerate(zip(classes, class_colours(classes), strict=True)):
        red, green, blue = rgb(colour)
        label = quoteattr(name)
        categories.append(f'<category render="true" symbol="{number}" value={label} label={label} type="string"/>')
        symbols.append(
            f'<symbol type="fill" name="{number}" alpha="0.55" force_rhr="0" clip_to_extent="1">'
            '<layer class="SimpleFill" pass="0" locked="0" enabled="1"><Option type="Map">'
            f'<Option type="QString" name="color" value="{red},{green},{blue},255"/>'
            '<Option type="QString" name="outline_color" value="60,60,60,90"/>'
            '<Option type="QString" name="outline_width" value="0.1"/>'
            '<Option type="QString" name="outline_style" value="solid"/>'
            '<Option type="QString" name="style" value="solid"/></Option></layer></symbol>'
        )
    return (
        "<!DOCTYPE qgis PUBLIC 'http://mrcc.com/qgis.dtd' 'SYSTEM'>"
        '<qgis version="3.28" styleCategories="Symbology">'
        '<renderer-v2 type="categorizedSymbol" attr="class" forceraster="0" symbollevels="0" enableorderby="0">'
        f"<categories>{''.join(categories)}</categories><symbols>{''.join(symbols)}</symbols></renderer-v2></qgis>"
    )
