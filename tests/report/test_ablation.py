from __future__ import annotations

import csv
from pathlib import Path

from PIL import Image

from mgcap.config import MGCAPConfig
from mgcap.report import ablation_report, ablation_tables
from tests.report.results import folder, summary

STUDIES = {
    "rotations": ("rotations", {"1": MGCAPConfig(rotations=1), "4": MGCAPConfig()}),
    "normalisation": ("spectral layer", {"sqrt": MGCAPConfig()}),
}
WHERE = {("rotations", "1"): "one", ("rotations", "4"): "four", ("normalisation", "sqrt"): "four"}
SUMMARIES = {"one": summary(70.0, rotations=1), "four": summary(75.0)}


def test_settings_that_are_the_same_share_a_summary() -> None:
    tables = ablation_tables(STUDIES, WHERE, SUMMARIES)
    assert [(row["setting"], row["mean"], row["runs"]) for row in tables["rotations"]] == [("1", 70, 2), ("4", 75, 2)]
    assert [row["mean"] for row in tables["normalisation"]] == [75]


def test_a_table_a_chart_and_a_section_for_each_study(tmp_path: Path) -> None:
    page = ablation_report(STUDIES, WHERE, SUMMARIES, folder(tmp_path), tmp_path, command="mgcap ablate x")
    text = page.read_text()
    assert "<td>1</td><td>70.00 \N{PLUS-MINUS SIGN} 2.50</td>" in text and "spectral layer" in text
    assert text.count("<img") == 2 and "mgcap ablate x" in text
    for name in STUDIES:
        assert Image.open(tmp_path / f"{name}.png").size[0] > 300
    rows = list(csv.DictReader((tmp_path / "rotations.csv").open()))
    assert [row["mean"] for row in rows] == ["70.0", "75.0"]
