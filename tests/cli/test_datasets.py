from __future__ import annotations

import shutil
from pathlib import Path

from PIL import Image

from tests.cli.run import run, sentence


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
