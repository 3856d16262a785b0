from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import pytest

from tests.cli.run import SMALL, run, sentence


@pytest.fixture
def fitted(scenes: Path, tmp_path: Path) -> Path:
    run("train", scenes, "--out", tmp_path / "m.mgcap", "--train-ratio", "0.5", *SMALL)
    return tmp_path / "m.mgcap"


def test_images_and_a_set(scenes: Path, fitted: Path, tmp_path: Path) -> None:
    files = sorted(scenes.rglob("*.png"))[:2]
    broken = tmp_path / "broken.png"
    broken.write_bytes(b"no image")
    out = tmp_path / "out"
    command = ["explain", *files, broken, "--model", fitted, "--out", out, "--dataset", scenes, "--nearest", "2"]
    done = run(*command, "--faithfulness", "1", "--split", fitted.with_suffix(".split.csv"))
    for path in files:
        assert (out / f"{path.stem}.png").stat().st_size > 10_000
        assert (out / f"{path.stem}.svg").read_text().startswith("<?xml")
        row = json.loads((out / f"{path.stem}.json").read_text())
        assert row["class"] and len(row["angles"]) == len(row["granularities"])
    assert "is not an image" in done.stdout or "broken.png" in done.stdout
    for page in ("images.html", "dataset.html"):
        assert "://" not in (out / page).read_text().replace("http://www.w3.org", "")
    assert len(list(csv.DictReader((out / "classes.csv").open()))) == 4
    assert "variance after" in done.stdout
    assert re.search(r"heat map +deletion +insertion\n(.*\n)*gradcam +0\.\d+ +0\.\d+", done.stdout)
    before = {path: path.stat().st_mtime_ns for path in out.glob("*.png")}
    run(*command)  # again: the figures are kept
    assert {path: path.stat().st_mtime_ns for path in out.glob("*.png")} == before
    run("explain", files[0], "--model", fitted, "--out", out, "--against", files[0].parent.name)
    assert (out / f"{files[0].stem}.png").stat().st_mtime_ns != before[out / f"{files[0].stem}.png"]


def test_bad_requests(scenes: Path, fitted: Path, tmp_path: Path) -> None:
    picture = next(scenes.rglob("*.png"))
    model = ["--model", fitted, "--out", tmp_path / "out"]
    assert "give images" in sentence("explain", *model)
    assert "--nearest needs --dataset" in sentence("explain", picture, *model, "--nearest", "3")
    assert "--split needs --dataset" in sentence("explain", picture, *model, "--split", picture)
    wrong = ["--dataset", scenes, "--split", picture]
    assert "split file" in sentence("explain", *model, *wrong)
    assert "tsne, pca or none" in sentence("explain", picture, *model, "--map", "umap")
    assert "does not know the class 'moon'" in sentence("explain", picture, *model, "--class", "moon")
    assert "there is no" in sentence("explain", picture, "--model", tmp_path / "none.mgcap")
    assert run("explain", tmp_path / "none.png", *model, code=1)
