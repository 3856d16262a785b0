from __future__ import annotations

import csv
import io
import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
from PIL import Image

from mgcap import SceneClassifier
from tests.cli.run import empty, run, run_apart, sentence
from tests.data.files import good_files, grey_tiff, mutated


def test_predict_in_every_format(scenes: Path, model: Path, tmp_path: Path) -> None:
    folder = sorted(p for p in scenes.iterdir() if p.is_dir())[0]
    broken = tmp_path / "broken.jpg"
    broken.write_text("no")
    arguments = ["predict", folder, str(scenes / "*" / "*0.png"), broken, "--model", model]
    rows = list(csv.DictReader(io.StringIO(run(*arguments, "--format", "csv").stdout)))
    assert len(rows) == 6 + 4 + 1
    assert float(rows[0]["probability"]) >= float(rows[0]["probability_2"])
    assert {"class_4", "probability_4", "error"} <= set(rows[0])
    assert rows[-1]["class"] == "" and "broken.jpg is not an image" in rows[-1]["error"]
    done = run(*arguments, "--format", "json")
    parsed = json.loads(done.stdout)
    assert [entry["class"] for entry in parsed[:-1]] == [row["class"] for row in rows[:-1]]
    assert sum(entry["probability"] for entry in parsed[0]["top5"]) == pytest.approx(1, abs=1e-4)
    assert parsed[-1]["class"] is None and parsed[-1]["unknown"] is None and parsed[-1]["error"]
    assert "1 of 11 images could not be read" in done.stderr
    assert "probability" in run(*arguments, "--format", "table").stdout
    run("predict", broken, "--model", model, code=1)
    assert "no images in" in sentence("predict", empty(tmp_path), "--model", model)
    assert "nothing matches" in sentence("predict", str(tmp_path / "*.nothing"), "--model", model)
    assert "table, csv or json" in sentence("predict", broken, "--model", model, "--format", "xml")


def test_predict_odd_images(model: Path, tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (40, 50, 3), dtype=np.uint8)
    image = Image.fromarray(pixels)
    image.save(tmp_path / "rgb.png")
    image.convert("CMYK").save(tmp_path / "cmyk.jpg")
    image.convert("L").save(tmp_path / "grey.png")
    image.convert("RGBA").save(tmp_path / "rgba.png")
    tifffile.imwrite(tmp_path / "deep.tif", pixels.astype(np.uint16) * 257, photometric="rgb")
    Image.new("RGB", (1, 1)).save(tmp_path / "dot.png")
    (tmp_path / "text.jpg").write_text("text")
    tifffile.imwrite(tmp_path / "huge.tif", shape=(30000, 30000, 3), dtype=np.uint8, photometric="rgb")
    parsed = json.loads(run("predict", tmp_path, "--model", model, "--format", "json").stdout)
    rows = {Path(row["path"]).name: row for row in parsed}
    for name in ("rgb.png", "cmyk.jpg", "grey.png", "rgba.png", "deep.tif"):
        assert rows[name]["class"], rows[name]
    assert rows["rgba.png"]["probability"] == pytest.approx(rows["rgb.png"]["probability"], abs=1e-5)
    assert rows["deep.tif"]["probability"] == pytest.approx(rows["rgb.png"]["probability"], abs=1e-3)
    assert "at least 8 x 8" in rows["dot.png"]["error"]
    assert "not an image" in rows["text.jpg"]["error"]
    assert "over the limit" in rows["huge.tif"]["error"]


@pytest.mark.filterwarnings("ignore::UserWarning")  # Pillow's doubts
def test_a_row_for_every_file_among_crafted_ones(model: Path, scenes: Path, tmp_path: Path) -> None:
    kinds = tmp_path / "kinds"
    kinds.mkdir()
    rng = random.Random(1)
    crafted = tmp_path / "crafted"
    crafted.mkdir()
    for path in good_files(kinds):
        for number in range(3):
            (crafted / f"{number}{path.name}").write_bytes(mutated(path.read_bytes(), rng))
    (crafted / "volume.tif").write_bytes(grey_tiff(1000, 1000, more={32997: (4, 2000)}))
    (crafted / "[red]odd[").mkdir()
    (crafted / "[red]odd[/].png").write_text("no")  # a tag of rich
    (crafted / os.fsdecode(b"not\xfftext.jpg")).write_text("no")
    wrong = ["x" * 300 + ".png", "~nobody-of-this-name/a.png", tmp_path / "none.tif"]
    arguments = ["predict", kinds, crafted, *wrong, "--model", model, "--format"]
    rows = json.loads(run(*arguments, "json").stdout)
    files = sum(path.is_file() for folder in (kinds, crafted) for path in folder.rglob("*"))
    assert len(rows) == files + len(wrong)
    assert all((row["class"] is None) == (row["error"] is not None) for row in rows)
    assert all(row["class"] for row in rows if Path(row["path"]).parent == kinds)
    assert all(row["error"].isprintable() for row in rows if row["error"])
    assert {"volume.tif", "].png"} <= {Path(row["path"]).name for row in rows if row["error"]}
    for form in ("csv", "table"):
        done = subprocess.run([sys.executable, "-m", "mgcap", *map(str, arguments), form], capture_output=True)
        assert done.returncode == 0 and b"Traceback" not in done.stderr
        if form == "csv":
            assert b"[red]odd[/].png" in done.stdout and b"not\xfftext.jpg" in done.stdout
    run("predict", crafted / "volume.tif", *wrong, "--model", model, code=1)


def test_several_images_in_a_file_are_said_in_a_sentence(model: Path, tmp_path: Path) -> None:
    image = Image.new("RGB", (40, 40), "red")
    for name in ("a.tif", "b.tif"):
        image.save(tmp_path / name, save_all=True, append_images=[image])
    done = run_apart("predict", tmp_path, "--model", model)
    told = [line for line in done.stderr.splitlines() if "several" in line]
    assert len(told) == 1 and "FirstFrameWarning" not in done.stderr and "warnings.warn" not in done.stderr
    assert told[0].endswith(".tif holds several images; only the first is used, here and in other such files")


def test_bad_models(model: Path, tmp_path: Path, scenes: Path) -> None:
    image = next(scenes.rglob("*.png"))
    assert "there is no model file" in sentence("predict", image, "--model", tmp_path / "none.mgcap")
    (tmp_path / "cut.mgcap").write_bytes(model.read_bytes()[:5000])
    assert "truncated" in sentence("predict", image, "--model", tmp_path / "cut.mgcap")


def test_what_is_not_sure_enough_is_unknown(scenes: Path, model: Path) -> None:
    arguments = ["predict", scenes, "--model", model, "--format"]
    plain = list(csv.DictReader(io.StringIO(run(*arguments, "csv").stdout)))
    strict = list(csv.DictReader(io.StringIO(run(*arguments, "csv", "--unknown", 0.99).stdout)))
    assert "unknown" not in {row["class"] for row in plain} and "unknown" in {row["class"] for row in strict}
    assert [row["probability"] for row in plain] == [row["probability"] for row in strict]
    assert "less than or equal to 0.99" in run(*arguments, "csv", "--unknown", 2, code=2).output
    own = SceneClassifier.load(model, engine="torch")
    rows = json.loads(run(*arguments, "json", "--unknown", 0.5, "--no-cache").stdout)
    found = own.predict_readable([row["path"] for row in rows], on_error=None, keep=False)
    assert found.distances is not None
    assert [row["distance"] for row in rows] == pytest.approx(found.distances, abs=1e-4)
    limits = own.limits(0.5)
    expected = (found.distances > limits.distance) | (found.probabilities.max(1) < limits.confidence)
    assert [row["unknown"] for row in rows] == expected.tolist() and 0 < expected.sum() < len(rows)
    assert [row["class"] == "unknown" for row in rows] == expected.tolist()
    assert "unknown" not in {entry["class"] for row in rows for entry in row["top5"]}


def test_large_rasters_are_for_map(model: Path, scenes: Path, write_raster: Any, tmp_path: Path) -> None:
    small = write_raster(np.zeros((3, 64, 64), np.uint8), "small.tif")
    assert "mgcap map" not in run("predict", small, "--model", model).stderr
    placed = write_raster(np.zeros((3, 64, 128), np.uint8), "placed.tif")  # twice the training images, on the ground
    done = run("predict", small, placed, "--model", model, "--format", "json")
    assert f"{placed}: far larger" in done.stderr and "mgcap map" in done.stderr
    assert all(row["class"] for row in json.loads(done.stdout))
    plain = tmp_path / "plain.png"
    Image.new("RGB", (128, 128)).save(plain)
    assert "mgcap map" not in run("predict", plain, "--model", model).stderr
    Image.new("RGB", (64, 256)).save(plain)
    assert "mgcap map" in run("predict", plain, "--model", model).stderr
