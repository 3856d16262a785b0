from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet
import pytest
import rasterio
from PIL import Image
from rasterio.enums import ColorInterp
from rasterio.transform import from_origin

from tests.cli.run import run, sentence


@pytest.fixture
def raster(tmp_path: Path, scenes: Path) -> Path:
    files = sorted(scenes.glob("*/*0.png"))
    pixels = np.concatenate([np.asarray(Image.open(file)) for file in files], 1)
    path = tmp_path / "scene.tif"
    _write(path, np.moveaxis(pixels, -1, 0))
    return path


def _write(path: Path, values: Any) -> None:
    place = {"crs": "EPSG:32632", "transform": from_origin(500_000, 5_000_000, 1, 1)}
    size = {"count": len(values), "height": values.shape[1], "width": values.shape[2], "dtype": values.dtype}
    with rasterio.open(path, "w", driver="GTiff", **place, **size) as dataset:
        dataset.write(values)


def _named(stdout: str) -> list[Path]:
    """The files that a command names, before what it says of the map."""
    return [Path(line) for line in stdout.split("\n\n")[0].splitlines()]


@pytest.mark.parametrize(("way", "cells"), [(["--exact"], 4), ([], 64), (["--cells", 2], 16), (["--overlap", 0.5], 16)])
def test_map(raster: Path, model: Path, tmp_path: Path, way: list[object], cells: int) -> None:
    out = tmp_path / "maps" / "landuse.geojson"
    done = run("map", raster, "--model", model, "--out", out, "--engine", "torch", *way)
    named = _named(done.stdout)
    assert named[0] == out
    assert all(path.is_file() for path in named)
    features = json.loads(out.read_text())["features"]
    assert len(features) == cells
    assert {"class", "probability"} <= set(features[0]["properties"])
    assert (tmp_path / "maps" / "scene.zarr").is_dir() == ("--exact" not in way and "--overlap" not in way)


def test_a_second_map_uses_the_index_of_the_first(raster: Path, model: Path, tmp_path: Path) -> None:
    options = ["--model", model, "--engine", "torch", "--index", tmp_path / "kept" / "scene.zarr"]
    first = run("map", raster, *options, "--out", tmp_path / "a.gpkg")
    second = run("map", raster, *options, "--out", tmp_path / "b.gpkg", "--cells", 2, "--unknown", 0)
    assert "Describing cells" in first.stderr and "Describing cells" not in second.stderr
    assert "16 cells with data" in second.stderr
    for way in (["--exact"], ["--overlap", 0.5]):
        assert "--index is for maps without --exact" in sentence("map", raster, *options, *way)
    assert "--cells is for maps without --exact" in sentence("map", raster, "--exact", "--cells", 4)
    other = tmp_path / "other.tif"
    other.write_bytes(raster.read_bytes())
    assert "--index is for one raster, not for 2" in sentence("map", raster, other, *options, "--out", tmp_path)


def test_several_rasters_go_to_a_folder(raster: Path, model: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.tif"
    other.write_bytes(raster.read_bytes())
    run("map", raster, other, "--model", model, "--out", tmp_path / "maps", "--format", "geojson", "--engine", "torch")
    assert (tmp_path / "maps" / "other.landuse.geojson").is_file()
    assert (tmp_path / "maps" / "scene.landuse.geojson").is_file()
    assert "must be a folder" in sentence("map", raster, other, "--model", model, "--out", tmp_path / "a.gpkg")


def test_areas_of_a_class_are_dissolved(raster: Path, model: Path, tmp_path: Path) -> None:
    options = ["--model", model, "--engine", "torch", "--dissolve"]
    done = run("map", raster, *options, "--out", tmp_path / "maps" / "landuse.parquet")
    assert tmp_path / "maps" / "landuse.classes.parquet" in _named(done.stdout)
    assert (tmp_path / "maps" / "landuse.classes.sld").is_file()
    cells, patches = (
        pyarrow.parquet.read_table(tmp_path / "maps" / f"{name}.parquet") for name in ("landuse", "landuse.classes")
    )
    assert len(cells) == sum(patches["cells"].to_pylist()) > 0
    assert sum(cells["area_m2"].to_pylist()) == pytest.approx(sum(patches["area_m2"].to_pylist()), rel=1e-4)
    assert "--format takes gpkg, geojson or parquet, not 'shp'" in sentence("map", raster, "--format", "shp")


def test_bad_input_gets_one_sentence(raster: Path, model: Path, tmp_path: Path) -> None:
    def told(*arguments: object) -> str:
        return sentence("map", *arguments, "--model", model, "--out", tmp_path / "m.gpkg", "--engine", "torch")

    assert "there is no file" in told(tmp_path / "none.tif")
    for folder in ("a.zarr", "b"):
        (tmp_path / folder).mkdir()
    assert f"only folders match {tmp_path}/*.zarr, as" in told(f"{tmp_path}/*.zarr")
    (tmp_path / "a.zarr" / "zarr.json").write_text("{}")
    for pattern in ("a.zarr", "*.zarr"):
        assert f"a.zarr is an index; give its raster, with --index {tmp_path}/a.zarr" in told(tmp_path / pattern)
    assert "there is no file" in told("~no such user/a.tif") and "x" in told("x" * 5000)
    assert "--bands takes numbers" in told(raster, "--bands", "a,b")
    assert "from 1 to 3" in told(raster, "--bands", "4,3,2")
    assert "error: --tile takes" in told(raster, "--tile", "3 miles")
    assert "error: --scale takes" in told(raster, "--scale", "dark")
    assert "at least 8" in told(raster, "--tile", "3px")
    deep = tmp_path / "deep.tif"
    _write(deep, np.full((3, 64, 64), 900, np.uint16))
    assert "uint16 pixels" in told(deep)
    many = tmp_path / "many.tif"
    _write(many, np.zeros((12, 64, 64), np.uint8))
    assert "--bands 4,3,2" in told(many)
    short = tmp_path / "short.tif"
    short.write_bytes(raster.read_bytes()[:-20_000])
    assert "short.tif cannot be read" in told(short)
    assert not (tmp_path / "m.gpkg").exists()
    (tmp_path / "scene.vrt").write_text("<VRTDataset/>")
    assert "give --allow-vrt if you trust it" in told(tmp_path / "scene.vrt")
    assert "error: --out takes a .gpkg or .geojson" in sentence(
        "map", raster, "--model", model, "--out", tmp_path / "m.txt"
    )


def test_one_bad_raster_does_not_cost_the_others(raster: Path, tmp_path: Path, model: Path) -> None:
    folder = tmp_path / "rasters"
    folder.mkdir()
    (folder / "a.tif").write_text("no raster")
    raster.rename(folder / "b.tif")
    done = run("map", folder, "--model", model, "--out", tmp_path / "maps", "--engine", "torch", code=1)
    assert "a.tif cannot be read" in done.stderr and "1 of 2 rasters could not be mapped" in done.stderr
    assert (tmp_path / "maps" / "b.landuse.gpkg").is_file()


def test_bands_that_are_guessed_are_said(scenes: Path, model: Path, tmp_path: Path) -> None:
    values = np.moveaxis(np.asarray(Image.open(next(scenes.glob("*/*0.png")))), -1, 0)
    four = tmp_path / "four.tif"
    _write(four, np.concatenate([values, values[:1]]))  # GDAL calls four bands of bytes red, green, blue and alpha
    more = ["--model", model, "--engine", "torch"]
    assert "does not say which" not in run("map", four, *more, "--out", tmp_path / "a.gpkg").stderr
    with rasterio.open(four, "r+") as dataset:
        dataset.colorinterp = [ColorInterp.gray] + [ColorInterp.undefined] * 3
    told = run("map", four, *more, "--out", tmp_path / "b.gpkg").stderr
    assert "four.tif does not say which of its 4 bands are red, green and blue" in told and "--bands 3,2,1" in told
    assert "does not say which" not in run("map", four, *more, "--bands", "1,2,3", "--out", tmp_path / "c.gpkg").stderr
