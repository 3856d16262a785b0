from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest
import rasterio
from PIL import Image
from rasterio.transform import from_origin

from tests.cli.run import run, sentence


@pytest.fixture
def raster(tmp_path: Path, scenes: Path) -> Path:
    pixels = np.concatenate([np.asarray(Image.open(file)) for file in sorted(scenes.glob("*/*0.png"))], 1)
    path, place = tmp_path / "scene.tif", {"crs": "EPSG:32632", "transform": from_origin(500_000, 5_000_000, 1, 1)}
    size = {"count": 3, "height": pixels.shape[0], "width": pixels.shape[1], "dtype": pixels.dtype}
    with rasterio.open(path, "w", driver="GTiff", **place, **size) as dataset:
        dataset.write(np.moveaxis(pixels, -1, 0))
    return path


def test_an_index_as_a_table(raster: Path, model: Path, tmp_path: Path) -> None:
    index, table = tmp_path / "a" / "scene.zarr", tmp_path / "a" / "scene.parquet"
    options = ["--model", model, "--engine", "torch", "--out", index]
    assert run("index", raster, *options).stdout.splitlines() == [str(index)]
    assert not table.exists()
    assert run("index", raster, *options, "--parquet").stdout.splitlines() == [str(index), str(table)]
    first = table.read_bytes()
    assert {"geometry", "row", "column", "vector"} <= set(pyarrow.parquet.read_schema(table).names)
    table.unlink()
    raster.unlink()  # an index is enough
    assert run("index", index, "--parquet").stdout.splitlines() == [str(table)]
    assert table.read_bytes() == first
    table.unlink()
    assert run("index", tmp_path / "a" / "*.zarr", "--parquet").stdout.splitlines() == [str(table)]


def test_bad_input_gets_one_sentence(raster: Path, tmp_path: Path) -> None:
    index = tmp_path / "scene.zarr"
    index.mkdir()
    (index / "zarr.json").write_text("{}")
    assert "is an index already; --parquet writes it as a table" in sentence("index", index)
    assert "not an index" in sentence("index", index, "--parquet")
    (tmp_path / "folder").mkdir()
    assert f"only folders match {tmp_path}/f*, as {tmp_path}/folder" in sentence("index", f"{tmp_path}/f*", "--parquet")
    assert f"nothing matches {tmp_path}/g*" in sentence("index", f"{tmp_path}/g*")
    assert "without --out and without rasters" in sentence("index", index, raster, "--parquet")
    assert "without --out and without rasters" in sentence("index", index, "--parquet", "--out", tmp_path / "b.zarr")
