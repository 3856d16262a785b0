"""From a map by its sample to how right it is, as a user goes."""

from __future__ import annotations

import json
from pathlib import Path

import geopandas
import numpy as np
import pytest
import rasterio
from PIL import Image
from rasterio.transform import from_origin

from tests.cli.run import run, sentence


@pytest.fixture
def raster(tmp_path: Path, scenes: Path) -> Path:
    pixels = np.concatenate([np.asarray(Image.open(file)) for file in sorted(scenes.glob("*/*0.png"))], 1)[:, :250]
    place = {"crs": "EPSG:32632", "transform": from_origin(500_000, 5_000_000, 1, 1)}
    path = tmp_path / "scene.tif"
    with rasterio.open(path, "w", driver="GTiff", count=3, width=250, height=64, dtype="uint8", **place) as dataset:
        dataset.write(np.moveaxis(pixels, -1, 0))
    return path


def test_a_map_is_sampled_and_assessed(raster: Path, model: Path, tmp_path: Path) -> None:
    out, points = tmp_path / "landuse.gpkg", tmp_path / "points.gpkg"
    command = ("map", raster, "--model", model, "--out", out, "--engine", "torch", "--unknown", 0)
    run(*command)
    done = run("datasets", "sample", out, "--per-class", 5, "--out", points, "--seed", 3)
    assert done.stdout.splitlines()[0].split() == ["class", "share", "of", "the", "area,", "%", "points"]
    assert done.stdout.splitlines()[-1] == str(points)
    assert "is empty: no feature has a class yet" in sentence(*command, "--reference", points)
    table = geopandas.read_file(points)
    assert table.geometry.x.max() < 500_250  # cells at the edge are cut
    table["class"] = table["map_class"].str.upper()
    table.to_file(points)
    done = run(*command, "--reference", points)
    lines = done.stdout.splitlines()
    names = [Path(line).name for line in lines if line.startswith(str(tmp_path))]
    assert names[-4:] == [
        f"landuse.{kind}" for kind in ("assessment.html", "assessment.json", "assessment.csv", "confusion.csv")
    ]
    assert lines[-1].startswith("100.0 % overall accuracy, of the area")
    summary = json.loads((tmp_path / "landuse.assessment.json").read_text())
    assert summary["compared"] == len(table) and summary["stratified"]["overall"]["value"] == 1
    assert sum(summary["mapped_areas"]) == pytest.approx(250 * 64, rel=2e-3)


def test_bad_references_are_refused_before_the_map_is_made(raster: Path, model: Path, tmp_path: Path) -> None:
    def told(*arguments: object) -> str:
        out = tmp_path / "maps" / "landuse.gpkg"
        said = sentence("map", raster, "--model", model, "--out", out, "--engine", "torch", *arguments)
        assert not out.exists()
        return said

    truth, names = tmp_path / "truth.csv", tmp_path / "names.csv"
    assert "there is no file" in told("--reference", truth)
    truth.write_text("class,x,y\nlava,500005,4999995\n")
    assert "has names that are no class of the map: 'lava'; say what they are there with --names" in told(
        "--reference", truth
    )
    assert "there is no file" in told("--reference", truth, "--names", names)
    names.write_text("reference,map\nlava,magma\n")
    assert "--names maps 'lava' to 'magma', which the map has not" in told("--reference", truth, "--names", names)
    assert "no field 'kind'; it has class, x, y" in told("--reference", truth, "--field", "kind")
    assert "--design: 'odd' is unknown; allowed are 'auto'" in told("--reference", truth, "--design", "odd")
    assert "--names is for maps with --reference" in told("--names", names)


def test_bad_maps_are_not_sampled(raster: Path, tmp_path: Path) -> None:
    out = ("--out", tmp_path / "points.gpkg")
    assert "there is no map" in sentence("datasets", "sample", tmp_path / "none.gpkg", *out)
    assert "is not the class raster of a map, which mgcap map writes" in sentence("datasets", "sample", raster, *out)
    assert not (tmp_path / "points.gpkg").exists()
