from __future__ import annotations

import csv
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.run import SMALL, empty, run, sentence


def test_training_again_keeps_the_former_model(scenes: Path, model: Path) -> None:
    before = model.read_bytes()
    done = run("train", scenes, "--out", model, "--split", model.with_suffix(".split.csv"), *SMALL)
    assert "model.previous.mgcap" in done.stderr
    assert model.with_name("model.previous.mgcap").read_bytes() == before
    rows = list(csv.DictReader(model.with_suffix(".split.csv").open()))
    assert len(rows) == 24 and {row["subset"] for row in rows} == {"train", "test"}


def test_bad_folders(tmp_path: Path, scenes: Path) -> None:
    out = tmp_path / "m.mgcap"
    assert "there is no folder" in sentence("train", tmp_path / "none", "--out", out)
    assert "no images in subfolders" in sentence("train", empty(tmp_path), "--out", out)
    one = tmp_path / "one"
    shutil.copytree(sorted(scenes.iterdir())[0], one / "only")
    assert "only the class 'only'" in sentence("train", one, "--out", out)
    (one / "single").mkdir()
    shutil.copy(next(scenes.rglob("*.png")), one / "single")
    assert "'single' has 1 image" in sentence("train", one, "--out", out, "--train-ratio", "0.5", *SMALL)
    run("train", one, "--out", out, *SMALL)  # without a split one image is enough
    assert out.exists()


def test_archives_lists_and_names_are_taken_as_folders_are(tmp_path: Path, scenes: Path) -> None:
    packed = shutil.make_archive(str(tmp_path / "Scenes"), "zip", scenes)
    flat = tmp_path / "flat"
    flat.mkdir()
    rows = ["file;class"]
    for number, path in enumerate(sorted(scenes.rglob("*.png"))):
        shutil.copy(path, flat / f"{path.parent.name}_{number:03}.png")
        rows.append(f"flat/{path.parent.name}_{number:03}.png;{path.parent.name}")
    (tmp_path / "list.csv").write_text("\n".join(rows))
    heads = []
    for given, told in (
        (packed, "unpacked in"),
        (flat, "classes are taken from the names"),
        (tmp_path / "list.csv", ""),
    ):
        out = tmp_path / "m.mgcap"
        done = run("train", given, "--out", out, "--train-count", 3, *SMALL)
        assert "24 images of 4 classes" in done.stderr and told in done.stderr
        assert "accuracy on 12 held-out images" in done.stderr
        heads.append([row["label"] for row in csv.DictReader(out.with_suffix(".split.csv").open())])
        assert "24 images of 4 classes" in run("datasets", "check", given).stdout
    assert heads[0] == heads[1] == heads[2]
    assert "path is empty" in sentence("train", _written(tmp_path / "x.csv", "path,label\n,a\n"), "--out", out)
    assert "a .zip archive" in sentence("train", _written(tmp_path / "x.json", "{}"), "--out", out)


def _written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_corrupt_images_are_skipped_in_training(tmp_path: Path, scenes: Path) -> None:
    data = tmp_path / "data"
    shutil.copytree(scenes, data)
    victim = next(data.rglob("*3.png"))
    victim.write_bytes(victim.read_bytes()[:200])
    done = run("train", data, "--out", tmp_path / "m.mgcap", *SMALL)
    assert f"skipped: {victim} is damaged" in done.stderr


def test_bad_settings(tmp_path: Path, scenes: Path) -> None:
    out = ["--out", tmp_path / "m.mgcap"]
    assert "'compact', 'tiny', 'paper' or 'authors-code'" in sentence("train", scenes, *out, "--preset", "best")
    assert "did you mean 'vgg16'" in sentence("train", scenes, *out, "--backbone", "vgg-16")
    assert "did you mean 'compact'" in sentence("train", scenes, *out, "--preset", "compct")
    assert "did you mean 'openvino'" in sentence("train", scenes, *out, *SMALL, "--engine", "openvine")
    assert "did you mean 'channels'" in sentence("train", scenes, *out, "--set", "chanels=8")
    assert "is not a configuration value" in sentence("train", scenes, *out, "--set", "colour=red")
    assert "NAME=VALUE" in sentence("train", scenes, *out, "--set", "colour")
    told = sentence("train", scenes, *out, "--backbone", "alexnet", "--set", "layer=conv1")
    assert "channels: 128 is more than the 64 of alexnet conv1; give --set channels=64 or less" in told
    assert "give --rotations alone" in sentence("train", scenes, *out, "--rotations", 4, "--set", "rotations=2")
    assert "give --preset alone" in sentence("train", scenes, *out, "--set", "preset=paper")
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
    slow = ["--weights", "random", "--engine", "torch", "--backbone", "vgg16", "--rotations", "12"]
    process = subprocess.Popen(
        [sys.executable, "-m", "mgcap", "train", scenes, "--out", out, *slow],
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),  # who runs the tests may have it ignored
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
