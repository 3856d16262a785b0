from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import geopandas
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import shapely
import zarr
from rasterio.transform import Affine

from mgcap.classifier import SceneClassifier
from mgcap.errors import RasterError
from mgcap.geo import index_table
from mgcap.geo.index import Index, open_index
from mgcap.geo.index_table import write_index_table
from mgcap.geo.indexing import index_raster


@pytest.fixture
def make_index(model_file: Path, write_raster: Any, picture: Any, tmp_path: Path) -> Any:
    classifier = SceneClassifier.load(model_file, engine="torch")
    values = picture.copy()
    values[:, :40, :100] = 0

    def make(empty: bool = False, **profile: Any) -> Index:
        raster = write_raster(values * (not empty), nodata=0, **profile)
        return index_raster(classifier, model_file, raster, tmp_path / "scene.zarr", cells=2)

    return make


@pytest.mark.parametrize("together", [5_000_000, 1])
def test_a_row_for_each_cell_with_data(
    make_index: Any, tmp_path: Path, together: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_table, "TOGETHER", together)
    rotated = Affine(0.3, 0.4, 500_000, 0.4, -0.3, 5_600_000)
    index = make_index(transform=rotated)
    path = tmp_path / "scene.parquet"
    write_index_table(path, index)
    store: Any = zarr.open_group(index.name, mode="r")
    vectors, rotations, valid = (store[name][:] for name in ("vectors", "rotations", "valid"))
    assert 0 < (valid > 0).sum() < valid.size
    table = geopandas.read_parquet(path)
    assert list(table.columns) == ["geometry", "row", "column", "valid", "canonical_angle", "vector"]
    assert pa.types.is_list(pq.read_schema(path).field("vector").type)
    assert sorted(zip(table["row"], table["column"], strict=True)) == [tuple(at) for at in np.argwhere(valid).tolist()]
    at = table["row"].to_numpy(), table["column"].to_numpy()
    assert (np.stack(table["vector"]) == vectors[at]).all()
    assert np.allclose(table["valid"], valid[at] / 255, atol=1e-3)
    assert (table["canonical_angle"] == np.array(index.about.angles)[rotations[at]]).all()
    assert table.crs == "EPSG:25832"
    pixels = shapely.transform(table.geometry.values, lambda xy: np.array(~rotated @ xy.T).T)
    low = np.stack((at[1] * 32, at[0] * 32), 1)
    expected = np.concatenate((low, np.minimum(low + 32, (200, 150))), 1)
    assert np.allclose(shapely.bounds(pixels), expected, atol=1e-4)


def test_an_index_that_is_not_whole_has_no_table(make_index: Any, tmp_path: Path) -> None:
    index = make_index()
    shutil.rmtree(Path(index.name) / "valid" / "c")
    with pytest.raises(RasterError, match=r"1 of 1 blocks of .* are missing"):
        write_index_table(tmp_path / "scene.parquet", open_index(index.name))
    assert not (tmp_path / "scene.parquet").exists()


def test_an_index_without_data_has_no_table(make_index: Any, tmp_path: Path) -> None:
    index = make_index(empty=True)
    assert not index.missing()
    with pytest.raises(RasterError, match="no cell with data"):
        write_index_table(tmp_path / "scene.parquet", open_index(index.name))
    assert not (tmp_path / "scene.parquet").exists()


@pytest.mark.parametrize(
    ("wkt", "why"),
    [
        ("nonsense", "is not understood"),
        ('PROJCS["x",EXTENSION["PROJ4","+proj=utm +zone=32 +nadgrids=/etc/passwd"]]', "names a grid file"),
    ],
)
def test_a_strangers_coordinate_system_is_not_followed(make_index: Any, tmp_path: Path, wkt: str, why: str) -> None:
    index = make_index()
    place = Path(index.name) / "zarr.json"
    said = json.loads(place.read_text())
    said["attributes"]["mgcap_index"]["crs"] = wkt
    place.write_text(json.dumps(said))
    with pytest.raises(RasterError, match=why):
        write_index_table(tmp_path / "scene.parquet", open_index(index.name))


def test_a_raster_without_a_place_has_a_table_in_pixels(make_index: Any, tmp_path: Path) -> None:
    write_index_table(tmp_path / "scene.parquet", make_index(crs=None, transform=Affine.identity()))
    table = geopandas.read_parquet(tmp_path / "scene.parquet")
    assert table.crs is None
    assert table.total_bounds.tolist() == [0, 0, 200, 150]
