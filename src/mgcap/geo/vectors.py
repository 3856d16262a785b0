"""Points and polygons with their attributes, from the files people have, in the coordinates that are asked for.

A file is opened as what its name and its first bytes say, and by itself, whatever it names: GeoJSON, GeoParquet and CSV
without GDAL, GeoPackages and Shapefiles by GDAL's drivers for them.
"""

from __future__ import annotations

import csv
import json
import sqlite3
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mgcap.errors import DataError, did_you_mean, missing
from mgcap.geo.opening import is_virtual, names_a_file
from mgcap.geo.shapefiles import text_encoding
from mgcap.typing import Array

if TYPE_CHECKING:
    from pyproj import CRS

SUFFIXES = (".gpkg", ".shp", ".geojson", ".json", ".parquet", ".geoparquet", ".csv")
#: Columns of a CSV file with its coordinates; the first are in degrees.
_DEGREES = (("lon", "lat"), ("longitude", "latitude"), ("lng", "lat"))
_PLANE = (("x", "y"), ("easting", "northing"))


@dataclass(frozen=True)
class Vectors:
    """Geometries with attributes.

    Attributes:
        name: Of the file.
        geometries: Of shapely; None where a feature has none.
        columns: The fields that were asked for and are there; None where there is no value.
        crs: The coordinate system; None if the file has none.
        plain: Whether coordinates without a system may be those of whatever they are compared with, as in a CSV file.
        degrees: Whether they are in degrees as the file does not say otherwise, as in GeoJSON.
    """

    name: str
    geometries: Array
    columns: dict[str, list[str | None]]
    crs: CRS | None
    plain: bool = False
    degrees: bool = False

    def __post_init__(self) -> None:
        import shapely

        places, of = shapely.get_coordinates(self.geometries, return_index=True)
        if len(wrong := of[np.isnan(places).any(1)]):
            raise DataError(f"{self.name}: feature {wrong[0] + 1} has a coordinate that is not a number")

    def __len__(self) -> int:
        return len(self.geometries)

    def into(self, crs: Any, what: str = "the map") -> Vectors:
        """The same in another coordinate system; what cannot be there has infinite coordinates.

        Args:
            crs: Of rasterio or pyproj; None for coordinates without a place on the Earth.
            what: What is in that system.
        """
        import pyproj
        import shapely
        from pyproj.exceptions import ProjError

        if self.crs is None:
            if not self.plain and crs is not None:
                raise DataError(f"{self.name} has no coordinate system; say which it is in (in QGIS: Set Layer CRS)")
            return self
        if crs is None:
            raise DataError(
                f"{self.name} has a coordinate system{' (GeoJSON is in degrees)' * self.degrees}, and {what} has none; "
                "give places on it as a CSV file with the columns x and y"
            )
        target = pyproj.CRS.from_wkt(crs.to_wkt())
        if self.crs == target:
            return self
        try:
            way = pyproj.Transformer.from_crs(self.crs, target, always_xy=True)
        except ProjError:
            raise DataError(f"{self.name}: no way leads from '{self.crs.name}' to '{target.name}' of {what}") from None
        moved = shapely.transform(self.geometries, lambda p: np.stack(way.transform(p[:, 0], p[:, 1]), -1))
        return Vectors(self.name, moved, self.columns, target)


def read_vectors(
    path: str | Path, fields: Sequence[str], optional: Sequence[str] = (), layer: str | None = None
) -> Vectors:
    """Read the geometries of a file, and some of its fields as text.

    Args:
        path: A GeoPackage, Shapefile, GeoJSON, GeoParquet or CSV file.
        fields: That it must have.
        optional: Others, which may be missing.
        layer: Of a GeoPackage; without it the one that has the fields.

    Raises:
        DataError: In one sentence, if the file cannot be read or has not what it should.
    """
    path = Path(path).expanduser()
    if is_virtual(str(path)) or path.suffix.lower() not in SUFFIXES:
        raise DataError(f"{path} is not a .gpkg, .shp, .geojson, .parquet or .csv file")
    if not path.is_file():
        raise DataError(f"{path} is a folder, not a file" if path.is_dir() else missing("file", path))
    if path.stat().st_size == 0:
        raise DataError(f"{path} is empty")
    if layer is not None and path.suffix.lower() != ".gpkg":
        raise DataError(f"{path} has no layers; `layer` is for GeoPackages")
    by_gdal: _Reader = partial(_by_gdal, layer=layer)
    readers: dict[str, _Reader] = {
        ".gpkg": by_gdal,
        ".shp": by_gdal,
        ".csv": _csv,
        ".geojson": _geojson,
        ".json": _geojson,
    }
    with _reading(path):
        found = readers.get(path.suffix.lower(), _parquet)(path, fields, optional)
    if not len(found):
        raise DataError(f"{path} has no features")
    if found.crs is not None and names_a_file(found.crs.to_wkt()):
        raise DataError(f"{path} has a coordinate system that names a grid file")
    return found


#: Reads the fields of a file that it must have, and those that it may have.
_Reader = Callable[[Path, Sequence[str], Sequence[str]], Vectors]


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Turn whatever a reader complains of into one sentence."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # of coordinates that are no numbers, which are refused
            yield
    except DataError:
        raise
    except Exception as error:  # readers fail in too many ways to name
        reason = " ".join(str(error).split()) or type(error).__name__
        raise DataError(f"{path} cannot be read: {reason[:300]}") from error


def _check_fields(path: Path, fields: Sequence[str], known: Sequence[str]) -> None:
    for name in fields:
        if name not in known:
            listed = ", ".join(map(str, known)) or "no field"
            raise DataError(f"{path} has no field '{name}'{did_you_mean(name, known)}; it has {listed}")


def text_of(value: Any) -> str | None:
    """A value of a field as text: whole numbers without a fraction, None for nothing."""
    try:
        nothing = value is None or bool(value != value)  # NaN, and no date
    except TypeError:  # what pandas has for nothing is neither equal nor different
        nothing = True
    if nothing:
        return None
    if isinstance(value, float | np.floating) and float(value).is_integer():
        value = int(value)
    return str(value).strip() or None


def _by_gdal(path: Path, fields: Sequence[str], optional: Sequence[str], layer: str | None = None) -> Vectors:
    import pyogrio
    import pyproj
    import shapely

    with path.open("rb") as file:
        head = file.read(72)
    if path.suffix.lower() == ".gpkg":
        right = head.startswith(b"SQLite format 3\x00") and head[68:70] == b"GP"
    else:
        right = head.startswith(b"\x00\x00\x27\x0a")
    if not right:
        raise DataError(f"{path} is not a {'GeoPackage' if path.suffix.lower() == '.gpkg' else 'Shapefile'}")
    if any(names_a_file(text) for text in _coordinate_texts(path)):  # before GDAL reads them
        raise DataError(f"{path} has a coordinate system that names a grid file")
    whole = str(path.resolve())
    layers = [name for name, kind in pyogrio.list_layers(whole) if kind is not None]
    if not layers:
        raise DataError(f"{path} has no layer with geometries")
    if layer is not None:
        if layer not in layers:
            raise DataError(f"{path} has no layer '{layer}'{did_you_mean(layer, layers)}; it has {', '.join(layers)}")
        layers = [layer]
    encoding = text_encoding(path)
    known = {own: list(pyogrio.read_info(whole, layer=own, encoding=encoding)["fields"]) for own in layers}
    fitting = [own for own in layers if set(fields) <= set(known[own])]
    if len(fitting) != 1:
        _check_fields(path, fields, known[layers[0]])
        listed = ", ".join(fitting)
        what = "give a file with one, or `layer` to mgcap train"  # other commands have no such option
        raise DataError(f"{path} has several layers with these fields: {listed}; {what}")
    wanted = [name for name in dict.fromkeys((*fields, *optional)) if name in known[fitting[0]]]
    meta, _, geometries, values = pyogrio.raw.read(
        whole, layer=fitting[0], columns=wanted, encoding=encoding, force_2d=True
    )
    columns = {name: [text_of(v) for v in own] for name, own in zip(meta["fields"], values, strict=True)}
    crs = pyproj.CRS.from_user_input(meta["crs"]) if meta["crs"] else None
    if crs is not None and crs.name.startswith("Undefined"):  # what a GeoPackage says of none
        crs = None
    return Vectors(path.name, shapely.from_wkb(geometries), columns, crs)


def _coordinate_texts(path: Path) -> list[str]:
    """What a file says of its coordinate systems in words."""
    if path.suffix.lower() == ".gpkg":
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)) as database:
            return [str(text) for (text,) in database.execute("SELECT definition FROM gpkg_spatial_ref_sys")]
    beside = [own for own in (path.with_suffix(".prj"), path.with_suffix(".PRJ")) if own.is_file()]
    return [own.read_text(encoding="utf-8", errors="replace") for own in beside]


def _geojson(path: Path, fields: Sequence[str], optional: Sequence[str]) -> Vectors:
    import pyproj
    import shapely
    from shapely.geometry import shape

    try:
        content = json.loads(path.read_text(encoding="utf-8-sig"))
        features = content["features"]
        properties = [feature.get("properties") or {} for feature in features]
        shapes = [feature.get("geometry") for feature in features]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DataError(f"{path} is not a GeoJSON file with a collection of features") from error
    known = list(dict.fromkeys(name for own in properties for name in own))
    if features:
        _check_fields(path, fields, known)
    geometries = np.array([shape(own) if own else None for own in shapes], object)
    wanted = [name for name in dict.fromkeys((*fields, *optional)) if name in known]
    columns = {name: [text_of(own.get(name)) for own in properties] for name in wanted}
    said = ((content.get("crs") or {}).get("properties") or {}).get("name")  # of older files
    crs = pyproj.CRS.from_user_input(said or "OGC:CRS84")
    return Vectors(path.name, shapely.force_2d(geometries), columns, crs, degrees=said is None)


def _parquet(path: Path, fields: Sequence[str], optional: Sequence[str]) -> Vectors:
    import geopandas
    import pyarrow.parquet
    import shapely

    schema = pyarrow.parquet.read_schema(path)
    try:
        geometry = json.loads((schema.metadata or {})[b"geo"])["primary_column"]
    except (KeyError, ValueError, TypeError) as error:
        raise DataError(f"{path} is not a GeoParquet file: it has no geometries") from error
    _check_fields(path, fields, [name for name in schema.names if name != geometry])
    wanted = [name for name in dict.fromkeys((*fields, *optional)) if name in schema.names]
    table = geopandas.read_parquet(path, columns=[*wanted, geometry])
    columns = {name: [text_of(v) for v in table[name].astype(object)] for name in wanted}
    return Vectors(path.name, shapely.force_2d(table.geometry.to_numpy()), columns, table.crs)


def _csv(path: Path, fields: Sequence[str], optional: Sequence[str]) -> Vectors:
    import pyproj
    import shapely

    with path.open(encoding="utf-8-sig", newline="") as file:
        first = file.readline()
        file.seek(0)
        rows = csv.DictReader(file, delimiter=max(",;\t", key=first.count))
        known = [name.strip() for name in rows.fieldnames or ()]
        rows.fieldnames = known
        lower = {name.lower(): name for name in known}
        pairs = [pair for pair in (*_DEGREES, *_PLANE) if set(pair) <= set(lower)]
        if not pairs:
            raise DataError(f"{path} has no coordinates: columns lon and lat in degrees, or x and y as of the map")
        _check_fields(path, fields, known)
        wanted = [name for name in dict.fromkeys((*fields, *optional)) if name in known]
        columns: dict[str, list[str | None]] = {name: [] for name in wanted}
        geometries = []
        for number, row in enumerate(rows, 2):
            place = [_coordinate(path, number, lower[axis], row[lower[axis]]) for axis in pairs[0]]
            geometries.append(None if None in place else shapely.Point(*place))
            for name in wanted:
                columns[name].append(text_of(row[name]))
    crs = pyproj.CRS.from_user_input("OGC:CRS84") if pairs[0] in _DEGREES else None
    return Vectors(path.name, np.array(geometries, object), columns, crs, plain=crs is None)


def _coordinate(path: Path, line: int, name: str, text: str | None) -> float | None:
    if text is None or not text.strip():
        return None
    try:
        return float(text.strip().replace(",", "."))
    except ValueError:
        raise DataError(f"{path}, line {line}: {name} is '{text}', which is no number") from None
