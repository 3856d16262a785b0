from __future__ import annotations

import json
from pathlib import Path

from tests.cli.run import SMALL, run, sentence


def test_ten_splits_in_miniature(scenes: Path, tmp_path: Path) -> None:
    options = ["--train-ratio", 0.5, "--runs", 2, "--out", tmp_path, *SMALL]
    report = json.loads(run("evaluate", scenes, *options, "--json", "-").stdout)
    assert len(report["runs"]) == 2 and 0 <= report["mean"] <= 100
    page = (tmp_path / "report.html").read_text()
    assert f"{report['mean']:.2f} ±" in page and "://" not in page
    again = run("evaluate", scenes, *options)
    assert "accuracy" in again.stderr and again.stdout.split()[:3] == ["class", "accuracy,", "%"]
    assert again.stdout.count("\n") == 1 + 4
    splits = [option for n in range(2) for option in ("--splits", tmp_path / "splits" / f"run-0{n}.csv")]
    repeated = run("evaluate", scenes, *splits, "--out", tmp_path / "again", "--json", "-", *SMALL)
    assert json.loads(repeated.stdout)["runs"] == report["runs"]
    assert "other configuration" in sentence("evaluate", scenes, *options, "--set", "ridge=0.01")


def test_few_shots(scenes: Path, tmp_path: Path) -> None:
    done = run("evaluate", scenes, "--shots", "1,2", "--runs", 2, "--out", tmp_path, "--json", "-", *SMALL)
    assert set(json.loads(done.stdout)["shots"]) == {"1", "2"}
    assert "--shots takes" in sentence("evaluate", scenes, "--shots", "0", "--out", tmp_path)
    assert "leaves none" in sentence("evaluate", scenes, "--shots", "6", "--out", tmp_path / "b", *SMALL)


def test_a_saved_model(scenes: Path, tmp_path: Path) -> None:
    run("train", scenes, "--out", tmp_path / "m.mgcap", *SMALL)
    done = run("evaluate", scenes, "--model", tmp_path / "m.mgcap", "--out", tmp_path / "e", "--json", "-")
    assert json.loads(done.stdout)["test_images"] == 24
    assert "none.mgcap" in sentence("evaluate", scenes, "--model", tmp_path / "none.mgcap", "--out", tmp_path / "e")
