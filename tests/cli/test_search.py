from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyogrio
import pytest
import rasterio
from PIL import Image
from rasterio.transform import from_origin

from tests.cli.run import run, sentence


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory, scenes: Path, model: Path) -> Path:
    folder = tmp_path_factory.mktemp("search")
    pixels = np.concatenate([np.asarray(Image.open(file)) for file in sorted(scenes.glob("*/*0.png"))], 1)
    place = {"crs": "EPSG:32632", "transform": from_origin(500_000, 5_000_000, 1, 1)}
    size = {"count": 3, "height": 64, "width": 256, "dtype": "uint8"}
    with rasterio.open(folder / "scene.tif", "w", driver="GTiff", **place, **size) as dataset:
        dataset.write(np.moveaxis(pixels, -1, 0))
    more = ["--model", model, "--tile", "64px", "--engine", "torch"]
    run("index", folder / "scene.tif", "--out", folder / "scene.zarr", *more)
    return folder / "scene.zarr"


def test_search(index: Path, model: Path, scenes: Path, tmp_path: Path) -> None:
    image = sorted(scenes.glob("*/*0.png"))[2]
    out = tmp_path / "hits" / "found.gpkg"
    more = ["--model", model, "--engine", "torch", "--out", out]
    done = run("search", index, "--like", image, "--top", "3", *more)
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["rank", "score", "place", "row", "column", "angle"]
    assert lines[1].split()[0] == "1" and len(lines) == 4
    assert pyogrio.read_info(out)["features"] == 3
    with Image.open(out.with_suffix(".png")) as sheet:
        assert sheet.width > 400
    done = run("search", index, "--at", "500160,4999968", "--all", "--top", "20", "--json", "-", *more)
    report = json.loads(done.stdout)
    assert report["cells"] == 64 and len(report["hits"]) == 20
    assert report["hits"][0]["score"] == pytest.approx(1, abs=1e-3)
    assert abs(report["hits"][0]["x"] - 500_160) <= 16
    assert report["files"] == [str(out), str(out.with_suffix(".png"))]


def test_bad_input_gets_one_sentence(index: Path, model: Path, scenes: Path, tmp_path: Path) -> None:
    def told(*arguments: object) -> str:
        return sentence("search", *arguments, "--model", model, "--engine", "torch", "--out", tmp_path / "f.gpkg")

    image = next(scenes.glob("*/*.png"))
    assert "give either --like or --at" in told(index)
    assert "give either --like or --at" in told(index, "--like", image, "--at", "1,2")
    assert "--at takes two numbers" in told(index, "--at", "here")
    assert "does not lie in" in told(index, "--at", "9.1,45.2") and "--crs EPSG:4326" in told(index, "--at", "9.1,45.2")
    assert "--crs takes a coordinate system" in told(index, "--at", "9,45", "--crs", "nowhere")
    assert "--crs is that of --at" in told(index, "--like", image, "--crs", "EPSG:4326")
    assert "there is no index" in told(tmp_path / "none.zarr", "--at", "1,2")
    assert "there is no file" in told(index, "--like", tmp_path / "none.png")
    (tmp_path / "text.png").write_text("no image")
    assert "text.png is not an image" in told(index, "--like", tmp_path / "text.png")
    other = sentence("search", index, "--like", image, "--engine", "torch", "--out", tmp_path / "f.txt")
    assert "--out takes a .gpkg file" in other
    assert not (tmp_path / "f.gpkg").exists()
