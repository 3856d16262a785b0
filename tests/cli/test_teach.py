"""``mgcap train`` with labels on a raster, and with more for a model."""

from __future__ import annotations

import json
from pathlib import Path

import geopandas
import numpy as np
import pytest
import rasterio
from rasterio.transform import from_origin
from rasterio.warp import transform

from mgcap import SceneClassifier
from tests.cli.run import run, sentence


@pytest.fixture
def raster(tmp_path: Path) -> Path:
    """Three strips of land of 1 m, two tiles of 64 pixels wide and four high."""
    rng = np.random.default_rng(0)
    pixels = np.full((3, 256, 384), 90, np.uint8)
    pixels[:, :, 128:256] = rng.integers(0, 256, (3, 256, 128))
    pixels[:, :, 256:] = (np.arange(128) // 8 % 2 * 200)[None, None]
    path, place = tmp_path / "scene.tif", {"crs": "EPSG:32632", "transform": from_origin(500_000, 5_000_000, 1, 1)}
    with rasterio.open(path, "w", "GTiff", 384, 256, 3, dtype="uint8", **place) as dataset:
        dataset.write(pixels)
    return path


def _points(path: Path, names: dict[str, int]) -> Path:
    """Places in degrees, by the column of pixels where a class lies."""
    features = []
    for name, column in names.items():
        for row in range(20, 250, 12):
            (lon,), (lat,) = transform("EPSG:32632", "EPSG:4326", [500_000 + column], [5_000_000 - row])
            geometry = {"type": "Point", "coordinates": [lon, lat]}
            features.append({"type": "Feature", "properties": {"class": name}, "geometry": geometry})
    path.write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    return path


def test_own_classes_on_an_own_raster(raster: Path, model: Path, tmp_path: Path) -> None:
    labels = _points(tmp_path / "labels.geojson", {"Wüste": 60, "Wald": 190})
    own = ["--base", model, "--engine", "torch", "--cells", 2]
    done = run("train", raster, "--labels", labels, *own, "--block", "64m", "--out", tmp_path / "own.mgcap")
    assert "scene.tif: 8 cells have a label" not in done.stderr and "cells have a label" in done.stderr
    assert "accuracy where blocks of 64 m are held out" in done.stderr
    assert "held out at random" in done.stderr and "Wüste" in done.stdout and "Wald" in done.stdout
    assert SceneClassifier.load(tmp_path / "own.mgcap").classes_.tolist() == ["Wald", "Wüste"]
    mapped = run("map", raster, "--model", tmp_path / "own.mgcap", "--out", tmp_path / "own.gpkg", "--cells", 2)
    assert "the index of this raster is" in mapped.stderr and "scene.zarr" in mapped.stderr
    assert "Describing cells" not in mapped.stderr  # training has described them
    more = _points(tmp_path / "more.geojson", {"Feld": 320})
    larger = tmp_path / "larger.mgcap"
    given = ["--extend", tmp_path / "own.mgcap", "--labels", more, "--engine", "torch", "--cells", 2]
    grown = run("train", raster, *given, "--rename", "Wüste=Sand", "--out", larger)
    assert "new: Feld, Sand" in grown.stderr and "gone: Wüste" in grown.stderr
    assert "accuracy on the new labels: 0.0 %" in grown.stderr
    table = [line.split() for line in grown.stdout.splitlines()]
    assert ["Feld", "0"] in [line[:2] for line in table] and "labels before" in grown.stdout
    assert SceneClassifier.load(larger).classes_.tolist() == ["Feld", "Sand", "Wald"]
    both = run("train", "--extend", larger, "--merge", "Feld, Sand=land", "--merge", "Wald=land", "--engine", "torch",
               "--out", tmp_path / "x.mgcap", code=1)  # fmt: skip
    assert "only the class 'land'" in both.stderr
    less = run("train", "--extend", larger, "--remove", "Feld", "--out", tmp_path / "less.mgcap", "--engine", "torch")
    assert "gone: Feld" in less.stderr
    light = run("train", raster, "--labels", labels, *own, "--no-keep-descriptors", "--out", tmp_path / "light.mgcap")
    assert "MB of the model" not in light.stderr
    told = sentence("train", "--extend", tmp_path / "light.mgcap", "--remove", "Wald", "--out", tmp_path / "x.mgcap")
    assert "carries no examples" in told and "--keep-descriptors" in told


def test_labels_that_lie_elsewhere_are_refused_before_the_raster_is_looked_at(
    raster: Path, model: Path, tmp_path: Path
) -> None:
    far = _points(tmp_path / "far.geojson", {"wood": 60_000, "town": 61_000})
    own = ["--base", model, "--engine", "torch", "--cells", 2, "--out", tmp_path / "own.mgcap"]
    done = run("train", raster, "--labels", far, *own, code=1)
    assert "far.geojson labels no cell of scene.tif" in done.stderr and "Describing cells" not in done.stderr
    near = _points(tmp_path / "near.geojson", {"wood": 60, "town": 190})
    done = run("train", raster, "--labels", near, *own, "--block", "0m", code=1)
    assert "--block takes metres or pixels above 0" in done.stderr and "Describing cells" not in done.stderr
    index = tmp_path / "elsewhere" / "own.zarr"
    index.parent.mkdir()
    for described in (True, False):
        done = run("train", raster, "--labels", near, *own, "--index", index)
        assert ("Describing cells" in done.stderr) == described
    done = run("train", raster, "--labels", near, *own, "--index", index, "--index", index, code=1)
    assert "--index is needed for each of the 1 rasters" in done.stderr


def test_a_layer_of_several(raster: Path, model: Path, tmp_path: Path) -> None:
    labels = tmp_path / "labels.gpkg"
    for layer, names in (("old", {"a": 60, "b": 190}), ("new", {"a": 60, "c": 190})):
        table = geopandas.read_file(_points(tmp_path / "own.geojson", names))
        table.to_file(labels, layer=layer)
    own = ["--labels", labels, "--base", model, "--engine", "torch", "--cells", 2, "--out", tmp_path / "own.mgcap"]
    assert "several layers with these fields: old, new; give a file with one, or --layer" in sentence(
        "train", raster, *own
    )
    run("train", raster, *own, "--layer", "new")
    made = SceneClassifier.load(tmp_path / "own.mgcap")
    assert made.classes_.tolist() == ["a", "c"] and made.provenance_["taught"]["files"] == ["labels.gpkg"]


def test_what_is_missing_gets_one_sentence(raster: Path, model: Path, tmp_path: Path) -> None:
    labels = _points(tmp_path / "labels.geojson", {"a": 60, "b": 190})
    own = ["--base", model, "--engine", "torch", "--cells", 2, "--out", tmp_path / "own.mgcap"]
    for given, words in (
        (["--labels", labels], "give the rasters that the labels lie on"),
        ([raster, "--labels", tmp_path / "none.gpkg"], "none.gpkg"),
        ([raster, "--labels", labels, "--field", "clas"], "has no field 'clas' (did you mean 'class'?)"),
        ([raster, "--labels", labels, "--block", "3m"], "--block must not be smaller than a cell"),
        ([raster, "--labels", labels, "--preset", "paper"], "--preset is for folders of scenes"),
        ([raster, "--labels", labels, "--train-ratio", 0.5], "--train-ratio is for folders of scenes"),
        ([raster, "--labels", labels, "--rename", "a=b"], "are for --extend MODEL"),
        ([raster, "--extend", model, "--labels", labels], "--base is for new models"),
    ):
        assert words in sentence("train", *given, *own), given
    for given, words in (
        ([raster], "is a raster; give what its places show with --labels"),
        (["--extend", model], "--extend needs --labels, --rename, --merge or --remove"),
        (["--extend", model, "--merge", "a,b"], "--merge takes OLD=NEW, not 'a,b'"),
        (["--extend", model, "--rename", "a=b", "--rename", "a=c"], "gives the class 'a' two names, 'b' and 'c'"),
        (["--extend", model, "--rename", "a=b", "--block", "3m"], "--block is for rasters with --labels"),
        ([], "give one folder of scenes, or rasters with --labels"),
    ):
        assert words in sentence("train", *given, "--out", tmp_path / "own.mgcap"), given
    options = f"field=kind layer=old base={model} block=3m tile=64px cells=2 bands=1,2,3 scale=0,300 min-valid=0.2"
    for option in f"{options} cluster=local:2 allow-vrt".split():
        said = sentence("train", tmp_path, f"--{option}")
        assert f"--{option.partition('=')[0]} is for rasters with --labels" in said
    assert not (tmp_path / "own.mgcap").exists()
