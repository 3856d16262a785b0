from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

import geopandas
import numpy as np
import pyarrow.parquet as pq
import pyogrio
import pytest
import rasterio
import shapely
from pyproj import CRS
from rasterio.transform import Affine

from mgcap.errors import RasterError
from mgcap.geo import cells
from mgcap.geo.cells import Place
from mgcap.geo.grid import Grid
from mgcap.geo.polygons import write_polygons
from mgcap.geo.votes import ClassMap

GRID = Grid(150, 100, 32, 32)
SITE = 'LOCAL_CS["site",UNIT["metre",1],AXIS["Easting",EAST],AXIS["Northing",NORTH]]'


@pytest.fixture
def write(tmp_path: Path) -> Any:
    def written(name: str, crs: str | None = "EPSG:25832") -> Path:
        shape = (GRID.rows, GRID.columns)
        classes = (np.arange(20) % 3 - 1).reshape(shape).astype(np.int16)
        found = ClassMap(np.full((*shape, 1), 0.5, np.float32), classes, np.zeros(shape, np.float32))
        known = None if crs is None else rasterio.CRS.from_string(crs)
        degrees = crs == "EPSG:4326"
        transform = Affine(1e-5, 0, 9, 0, -1e-5, 50) if degrees else Affine(0.3, 0.4, 5e5, 0.4, -0.3, 5.6e6)
        place = Place(transform, known, datetime.datetime(2024, 5, 1, tzinfo=datetime.UTC))
        return write_polygons(tmp_path / name, found, GRID, place, ["a", "unknown"])[0]

    return written


def test_a_table_has_what_a_geopackage_has(write: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    package = pyogrio.read_dataframe(write("map.gpkg"), layer="scenes")
    monkeypatch.setattr(cells, "TOGETHER", 5)
    path = write("map.parquet")
    table = geopandas.read_parquet(path)
    assert pq.ParquetFile(path).num_row_groups == 3  # 13 cells, 5 together
    assert list(table.columns.drop("geometry")) == list(package.columns.drop("geometry"))
    assert table.crs == package.crs == "EPSG:25832"
    assert shapely.equals_exact(table.geometry.values, package.geometry.values).all()
    for name in table.columns.drop("geometry"):
        assert table[name].isna().tolist() == package[name].isna().tolist()
        assert table[name].dropna().tolist() == package[name].dropna().tolist()
    assert table["probability"].isna().sum() == (table["class"] == "unknown").sum() > 0


@pytest.mark.parametrize("crs", [None, SITE, "EPSG:4326", "EPSG:25832"])
def test_metadata_are_those_of_the_format(write: Any, crs: str | None) -> None:
    path = write("map.parquet", crs)
    file = pq.ParquetFile(path)
    said = json.loads(file.schema_arrow.metadata[b"geo"])
    assert (said["version"], said["primary_column"]) == ("1.1.0", "geometry")
    column = said["columns"]["geometry"]
    assert (column["encoding"], column["geometry_types"]) == ("WKB", ["Polygon"])
    assert str(file.schema_arrow.field("geometry").type) == "binary"
    if crs is None:
        assert column["crs"] is None
    else:
        assert CRS.from_json_dict(column["crs"]).equals(CRS.from_user_input(crs), ignore_axis_order=True)
    assert len(geopandas.read_parquet(path)) == 13


def test_the_same_map_has_the_same_bytes(write: Any) -> None:
    assert write("a.parquet").read_bytes() == write("b.parquet").read_bytes()


def test_other_names_are_refused(write: Any) -> None:
    with pytest.raises(RasterError, match=r"takes a \.gpkg or \.geojson file, or a \.parquet one, not .*map\.shp"):
        write("map.shp")
