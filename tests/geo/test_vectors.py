from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import geopandas
import numpy as np
import pytest
import rasterio
import shapely

from mgcap.errors import DataError
from mgcap.geo.vectors import read_vectors, text_of

UTM = rasterio.crs.CRS.from_epsg(25832)
PLACES = [(500_005.0, 5_599_995.0), (500_105.5, 5_599_901.25)]


@pytest.fixture
def table() -> Any:
    points = [shapely.Point(*place) for place in PLACES]
    return geopandas.GeoDataFrame({"class": ["forest", None], "code": [3, 4]}, geometry=points, crs="EPSG:25832")


def _write(table: Any, path: Path) -> None:
    if path.suffix == ".parquet":
        table.to_parquet(path)
    elif path.suffix == ".csv":
        plain = table.assign(Lon=table.geometry.x, LAT=table.geometry.y).drop(columns="geometry")
        plain.to_csv(path, index=False, sep=";", decimal=",")
    else:
        table.to_file(path, **({"RFC7946": "NO"} if path.suffix == ".geojson" else {}))


@pytest.mark.parametrize("code", [4326, 25832, 3857])
@pytest.mark.parametrize("suffix", [".gpkg", ".shp", ".geojson", ".parquet", ".csv"])
def test_every_format_and_system_gives_the_same_places(table: Any, tmp_path: Path, suffix: str, code: int) -> None:
    path = tmp_path / f"truth{suffix}"
    _write(table.to_crs(4326 if suffix == ".csv" else code), path)
    found = read_vectors(path, ["class"], ["code", "missing"])
    assert found.columns == {"class": ["forest", None], "code": ["3", "4"]}
    assert np.allclose(
        shapely.get_coordinates(found.into(UTM).geometries), PLACES, atol=2e-2 if suffix == ".csv" else 1e-3
    )


@pytest.mark.parametrize(
    ("encoding", "said", "names"),
    [
        ("UTF-8", False, ["Wüste", "森林"]),
        ("UTF-8", True, ["Wüste", "森林"]),
        ("ISO-8859-1", False, ["Wüste", "Öde"]),
        ("CP1250", True, ["Wüste", "Łąka"]),
    ],
)
def test_text_of_shapefiles_that_say_how_it_is_written_or_not(
    table: Any, tmp_path: Path, encoding: str, said: bool, names: list[str]
) -> None:
    path = tmp_path / "truth.shp"
    table.assign(**{"class": names, "höhe": [1, 2]}).to_file(path, encoding=encoding)
    if not said:
        path.with_suffix(".cpg").unlink()
    assert read_vectors(path, ["class"], ["höhe"]).columns == {"class": names, "höhe": ["1", "2"]}


def test_columns_of_pandas_with_missing_values(table: Any, tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")  # geopandas has it

    own = table.assign(
        kind=pandas.array(["forest", None], "string"), code=pandas.array([3, None], "Int64"), share=[1.0, 0.5]
    )
    own.to_parquet(tmp_path / "truth.parquet")
    found = read_vectors(tmp_path / "truth.parquet", ["kind"], ["code", "share"])
    assert found.columns == {"kind": ["forest", None], "code": ["3", None], "share": ["1", "0.5"]}
    nothing = (None, float("nan"), pandas.NA, pandas.NaT, "  ")
    assert [text_of(value) for value in nothing] == [None] * 5
    assert [text_of(value) for value in (1.0, np.float32(2), 1.5, True, " a ")] == ["1", "2", "1.5", "True", "a"]


def test_plain_coordinates_are_those_of_the_map(tmp_path: Path) -> None:
    path = tmp_path / "truth.csv"
    path.write_text("class,X,Y\nforest,5,6\nriver,,\n")
    for crs in (UTM, None):
        shapes = read_vectors(path, ["class"]).into(crs).geometries
        assert shapely.get_coordinates(shapes).tolist() == [[5, 6]] and shapes[1] is None


def test_the_layer_with_the_field_is_read(table: Any, tmp_path: Path) -> None:
    path = tmp_path / "truth.gpkg"
    table.drop(columns="class").to_file(path, layer="others")
    table.to_file(path, layer="truth")
    assert read_vectors(path, ["class"]).columns["class"][0] == "forest"
    with pytest.raises(DataError, match="several layers with these fields: others, truth"):
        read_vectors(path, ["code"])
    assert read_vectors(path, ["code"], layer="others").columns == {"code": ["3", "4"]}
    for name, words in (("truths", r"no layer 'truths' \(did you mean 'truth'\?\); it has others, truth"),
                        ("others", "no field 'class'")):  # fmt: skip
        with pytest.raises(DataError, match=words):
            read_vectors(path, ["class"], layer=name)
    table.to_parquet(tmp_path / "truth.parquet")
    with pytest.raises(DataError, match="has no layers; `layer` is for GeoPackages"):
        read_vectors(tmp_path / "truth.parquet", ["class"], layer="truth")


def _bad(tmp_path: Path, name: str, content: bytes | str) -> Path:
    path = tmp_path / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.gpkg", "text", "is not a GeoPackage"),
        ("a.gpkg", b"SQLite format 3\x00" + bytes(52) + b"GPKG" + bytes(100), "cannot be read"),
        ("a.shp", "text", "is not a Shapefile"),
        ("a.shp", b"\x00\x00\x27\x0a" + bytes(200), "cannot be read"),
        ("a.geojson", "", "is empty"),
        ("a.geojson", '{"type": "gdal_streamed_alg", "command_line": "gdal vector"}', "is not a GeoJSON file"),
        ("a.geojson", "[" * 99_999, "is not a GeoJSON file"),
        ("a.geojson", '{"features": []}', "has no features"),
        ("a.geojson", '{"features": [{"properties": {"class": 1}, "geometry": {"type": "Blob"}}]}', "cannot be read"),
        ("a.parquet", "text", "cannot be read"),
        ("a.csv", "class,height\nforest,3\n", "has no coordinates: columns lon and lat"),
        ("a.csv", "class,lon,lat\nforest,east,3\n", "line 2: lon is 'east', which is no number"),
        ("a.csv", b"\xff\xfe\x00class", "cannot be read"),
        ("a.csv", "class,lon,lat\n", "has no features"),
        (
            "a.csv",
            "Class,lon,lat\nforest,3,4\n",
            r"no field 'class' \(did you mean 'Class'\?\); it has Class, lon, lat",
        ),
        ("a.kml", "<kml/>", r"is not a \.gpkg"),
    ],
)
def test_bad_files_get_one_sentence(tmp_path: Path, name: str, content: Any, said: str) -> None:
    with pytest.raises(DataError, match=said) as error:
        read_vectors(_bad(tmp_path, name, content), ["class"])
    assert "\n" not in str(error.value)


def test_missing_files_and_virtual_ones(tmp_path: Path, table: Any) -> None:
    table.to_file(tmp_path / "truth.gpkg")
    with pytest.raises(DataError, match=r"there is no file .*trut\.gpkg \(did you mean 'truth\.gpkg'\?\)"):
        read_vectors(tmp_path / "trut.gpkg", ["class"])
    with pytest.raises(DataError, match="is not a"):
        read_vectors("/vsicurl/http://example.org/truth.gpkg", ["class"])
    with pytest.raises(DataError, match="is a folder"):
        read_vectors((tmp_path / "f.gpkg").mkdir() or tmp_path / "f.gpkg", ["class"])


@pytest.mark.parametrize("name", ["EPSG:25832", None])
def test_degrees_are_no_pixels(tmp_path: Path, name: str | None) -> None:
    """13.4 degrees east and 52.5 north would be a place near the corner of a raster without a coordinate system."""
    own = {"crs": {"type": "name", "properties": {"name": name}}} if name else {}
    feature = {"properties": {"class": "a"}, "geometry": {"type": "Point", "coordinates": [13.4, 52.5]}}
    path = tmp_path / "truth.geojson"
    path.write_text(json.dumps({"features": [feature], **own}))
    with pytest.raises(
        DataError, match=r"truth\.geojson has a coordinate system.*and the raster has none; .* CSV"
    ) as error:
        read_vectors(path, ["class"]).into(None, "the raster")
    assert ("GeoJSON is in degrees" in str(error.value)) == (name is None)


def test_a_layer_without_a_coordinate_system(table: Any, tmp_path: Path) -> None:
    bare = table.set_crs(None, allow_override=True)
    for name in ("truth.gpkg", "truth.shp", "truth.parquet"):
        _write(bare, tmp_path / name)
        found = read_vectors(tmp_path / name, ["class"])
        with pytest.raises(DataError, match=f"{name} has no coordinate system"):
            found.into(UTM)
        assert np.allclose(shapely.get_coordinates(found.into(None).geometries), PLACES)
    _write(table, tmp_path / "placed.gpkg")
    with pytest.raises(DataError, match="has a coordinate system, and the map has none"):
        read_vectors(tmp_path / "placed.gpkg", ["class"]).into(None)


def test_a_coordinate_system_that_names_a_file_is_refused(table: Any, tmp_path: Path) -> None:
    path = tmp_path / "truth.geojson"
    _write(table, path)
    content = json.loads(path.read_text())
    content["crs"] = {
        "type": "name",
        "properties": {"name": "+proj=longlat +ellps=WGS84 +nadgrids=/etc/passwd +type=crs"},
    }
    path.write_text(json.dumps(content))
    with pytest.raises(DataError, match="names a grid file"):
        read_vectors(path, ["class"])
    _write(table, tmp_path / "truth.shp")
    (tmp_path / "truth.prj").write_text('LOCAL_CS["x",EXTENSION["PROJ4_GRIDS","/etc/passwd"]]')
    _write(table, tmp_path / "truth.gpkg")
    with sqlite3.connect(tmp_path / "truth.gpkg") as database:
        definition = 'GEOGCS["x",EXTENSION["PROJ4","+proj=longlat +nadgrids=/etc/passwd"]]'
        database.execute("UPDATE gpkg_spatial_ref_sys SET definition = ? WHERE srs_id = 25832", (definition,))
    for name in ("truth.shp", "truth.gpkg"):
        with pytest.raises(DataError, match="names a grid file"):
            read_vectors(tmp_path / name, ["class"])


@pytest.mark.filterwarnings("error")
def test_a_coordinate_that_is_no_number_is_said_with_its_feature(tmp_path: Path) -> None:
    rings = [[[0, 0], [0, 1], [1, 1], [0, 0]]], [[[0, 0], [0, float("nan")], [1, 1], [0, 0]]]
    features = [
        {"type": "Feature", "properties": {"class": "wood"}, "geometry": {"type": "Polygon", "coordinates": own}}
        for own in rings
    ]
    (tmp_path / "nan.geojson").write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    with pytest.raises(DataError, match=r"nan\.geojson: feature 2 has a coordinate that is not a number"):
        read_vectors(tmp_path / "nan.geojson", ["class"])
