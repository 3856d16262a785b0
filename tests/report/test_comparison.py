from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

from mgcap.data.splits import Split
from mgcap.report import comparison_report
from mgcap.report.comparison import COLUMNS, cells
from tests.report.results import folder


def _row(name: str, mean: float | None) -> dict[str, Any]:
    numbers = {"fit_seconds": 1.25, "predict_ms": 12.3, "parameters": 1234567.0, "memory_mib": 99.6}
    return {
        "name": name,
        "title": name.title(),
        "family": "handcrafted",
        "mean": mean,
        "std": None if mean is None else 1.0,
        "runs": [] if mean is None else [mean],
        "error": "it broke" if mean is None else None,
        "published": None,
        "p_value": None,
        **(numbers if mean is not None else dict.fromkeys(numbers)),
    }


def test_cells_of_a_method() -> None:
    assert cells(_row("gist", 80.0), "+-") == ("Gist", "80.00 +- 1.00", "1.2", "12.3", "1,234,567", "100", "")
    assert cells(_row("sift", None))[:2] == ("Sift", "failed: it broke")
    assert len(cells(_row("sift", None))) == len(COLUMNS)


def test_files_and_the_best_method(tmp_path: Path) -> None:
    rows = [_row("gist", 80.0), _row("sift", None)]
    page = comparison_report(rows, folder(tmp_path), [Split((0,), (1,))], tmp_path, fingerprint={"seed": 0})
    text = page.read_text()
    assert "Gist: 80.00 %" in text and "failed: it broke" in text and (tmp_path / "cost.png").exists()
    assert [row["name"] for row in csv.DictReader((tmp_path / "methods.csv").open())] == ["gist", "sift"]
    assert len(json.loads((tmp_path / "summary.json").read_text())["methods"]) == 2


def test_nothing_worked(tmp_path: Path) -> None:
    page = comparison_report([_row("sift", None)], folder(tmp_path), [Split((0,), (1,))], tmp_path)
    assert "failed: it broke" in page.read_text() and not (tmp_path / "cost.png").exists()
