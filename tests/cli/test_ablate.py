from __future__ import annotations

import json
from pathlib import Path

from PIL import Image

from tests.cli.run import SMALL, run, sentence


def test_tables_and_plots(scenes: Path, tmp_path: Path) -> None:
    options = ["--train-ratio", 0.5, "--runs", 2, "--granularities", "1.0,0.8", "--out", tmp_path, *SMALL]
    report = json.loads(run("ablate", scenes, *options, "--json", "-").stdout)
    assert [row["setting"] for row in report["granularities"]] == ["1", "2", "1+2"]
    assert [row["setting"] for row in report["rotations"]] == ["1", "2"]
    assert all(0 <= row["mean"] <= 100 and row["runs"] == 2 for rows in report.values() for row in rows)
    for name in report:
        assert (tmp_path / f"{name}.csv").read_text().startswith("setting,mean,std")
        assert Image.open(tmp_path / f"{name}.png").size[0] > 300
    assert (tmp_path / "report.html").read_text().count("<img") == len(report)
    again = run("ablate", scenes, *options)
    assert "spectral layer" in again.stdout


def test_an_unknown_study(scenes: Path, tmp_path: Path) -> None:
    assert "no study 'x'" in sentence("ablate", scenes, "--studies", "x", "--out", tmp_path)
