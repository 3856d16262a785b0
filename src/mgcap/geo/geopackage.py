"""Layers as a GeoPackage, each with its style, if it has one, where QGIS looks for it."""

from __future__ import annotations

import datetime
import sqlite3
import warnings
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from mgcap.errors import RasterError
from mgcap.geo.styles import Style
from mgcap.persistence.files import atomic_path
from mgcap.typing import Array

#: Of the format: GDAL and QGIS of 2017 know it, and 1.4, the default of newer ones, makes GDAL 3.6 warn.
VERSION = "1.2"


class Layer(NamedTuple):
    """A layer of points or polygons."""

    name: str
    tables: Iterable[tuple[Any, dict[str, Array]]]  #: geometries in the file's coordinates, with their columns
    style: Style | None = None
    kind: str = "Polygon"


def write_geopackage(path: Path, layers: Sequence[Layer], crs: Any, changed: datetime.datetime) -> None:
    """Write layers, all or nothing; the same ones give the same bytes.

    Args:
        path: The file.
        layers: Their styles go into it too.
        crs: The coordinate system, if there is one.
        changed: The date that the file carries.
    """
    import pyogrio
    import shapely

    stamp = changed.strftime("%Y-%m-%dT%H:%M:%S.000Z")
    with atomic_path(path) as temporary:
        inner = temporary.with_name(temporary.name + ".gpkg")  # GDAL goes by the name
        pyogrio.set_gdal_config_options({"OGR_CURRENT_DATE": stamp})
        try:
            warnings.filterwarnings("ignore", "'crs' was not provided", UserWarning)
            for position, layer in enumerate(layers):
                for number, (shapes, columns) in enumerate(layer.tables):
                    pyogrio.raw.write(
                        inner,
                        shapely.to_wkb(shapes),
                        list(columns.values()),
                        list(columns),
                        layer=layer.name,
                        driver="GPKG",
                        geometry_type=layer.kind,
                        crs=crs.to_wkt() if crs is not None else None,
                        append=number > 0,
                        dataset_options={} if position or number else {"VERSION": VERSION},
                    )
            if styles := {layer.name: layer.style for layer in layers if layer.style is not None}:
                _add_styles(inner, styles, stamp)
            inner.replace(temporary)
        finally:
            inner.unlink(missing_ok=True)
            pyogrio.set_gdal_config_options({"OGR_CURRENT_DATE": None})


def check_replaced(path: Path, layer: str, field: str = "") -> None:
    """See that a file that is to be written replaces none but one of its kind.

    Args:
        path: The file.
        layer: Its only layer.
        field: What people fill in there: then it is not replaced either.

    Raises:
        RasterError: If it would.
    """
    if not path.exists():
        return
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as database:
            found = database.execute("SELECT table_name FROM gpkg_contents WHERE data_type = 'features'").fetchall()
            same = found == [(layer,)]
            query = f"SELECT count(*) FROM {layer} WHERE coalesce({field}, '') != ''"  # noqa: S608 - names of ours
            filled = same and field and database.execute(query).fetchone()[0]
    except sqlite3.Error:
        same, filled = False, 0
    if not same:
        raise RasterError(f"{path} is there already, and is something else; give `out` another name")
    if filled:
        raise RasterError(f"in {path} the field {field} is filled in at {filled} places; give `out` another name")


def _add_styles(path: Path, styles: dict[str, Style], stamp: str) -> None:
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
        values: list[tuple[Any, ...]] = [
            (name, style.title, style.qml, style.sld, style.title, stamp) for name, style in styles.items()
        ]
        database.executemany(
            "INSERT INTO layer_styles (f_table_catalog, f_table_schema, f_table_name, f_geometry_column, styleName, "
            "styleQML, styleSLD, useAsDefault, description, owner, update_time) "
            "VALUES ('', '', ?, 'geom', ?, ?, ?, 1, ?, '', ?)",
            values,
        )
    database.close()
