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


def test_an_index_says_what_it_cost_and_is_not_made_twice(raster: Path, model: Path, tmp_path: Path) -> None:
    options = ["--model", model, "--engine", "torch", "--out", tmp_path / "scene.zarr"]
    first = run("index", raster, *options)
    assert "scene.zarr: 64 cells, 0.0164 km² in" in first.stderr and "km² a minute" in first.stderr
    assert "scene.tif: 4 x 16 cells, 64 of them with data" in first.stderr
    second = run("index", raster, *options)
    assert "Describing cells" not in second.stderr and "km²" not in second.stderr
    assert second.stdout == first.stdout == f"{tmp_path / 'scene.zarr'}\n"
    other = raster.with_name("other.tif")
    other.write_bytes(raster.read_bytes())
    folder = ["--model", model, "--engine", "torch", "--out", tmp_path / "both"]
    assert len(run("index", raster, other, *folder, "--cells", 2).stdout.splitlines()) == 2
    assert sorted(path.name for path in (tmp_path / "both").iterdir()) == ["other.zarr", "scene.zarr"]
    told = sentence("index", raster, *options, "--cells", 3)
    assert "scene.zarr is an index that differs in --cells; give another name, or remove it" in told


def test_bad_rasters_get_one_sentence(raster: Path, model: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.zarr"

    def told(*arguments: object, place: Path = out) -> str:
        return sentence("index", *arguments, "--model", model, "--engine", "torch", "--out", place)

    for name, content, words in (
        ("text.tif", b"hello", "is not a GeoTIFF, JPEG 2000, PNG, JPEG or WebP file"),
        ("empty.tif", b"", "empty.tif is empty"),
        ("head.tif", raster.read_bytes()[:200], "head.tif cannot be read"),
    ):
        (tmp_path / name).write_bytes(content)
        assert words in told(tmp_path / name)
    assert "there is no file" in told(tmp_path / "none.tif")
    assert not out.exists()
    short = tmp_path / "short.tif"
    short.write_bytes(raster.read_bytes()[:-20_000])
    assert "short.tif cannot be read" in told(short)
    assert "text.tif is not an index" in told(raster, place=tmp_path / "text.tif")
    assert "--out takes a place on this machine, not s3:/maps/a.zarr" in told(raster, place=Path("s3://maps/a.zarr"))
    assert "too few for --cells 16" in told(raster, "--cells", 16, "--tile", "8px")
    assert "--tile takes metres or pixels" in told(raster, "--tile", "0m")
    for cells in (0, 1000):
        assert "--cells" in run("index", raster, "--cells", cells, code=2).stderr


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
