from __future__ import annotations

from pathlib import Path

from PIL import Image

from mgcap.report import evaluation_report, few_shot_report, model_report
from tests.report.results import folder, summary


def test_a_study(tmp_path: Path) -> None:
    found = summary()
    page = evaluation_report(found, folder(tmp_path), tmp_path, wrong=found["wrong"], finetuned=True, command="mgcap x")
    text = page.read_text()
    assert page == tmp_path / "report.html" and "90.00 \N{PLUS-MINUS SIGN} 2.50 %" in text
    assert "89.00" in text and "91.00" in text and "mgcap x" in text  # each run, and how to repeat it
    assert (
        text.count("<td>90</td>") == 6
        and "<td>calibration error with the temperature, %</td><td>-</td><td>-</td>" in text
    )
    assert "river, called forest (0.70)" in text
    assert "How to repeat" not in evaluation_report(found, folder(tmp_path), tmp_path).read_text()


def test_few_shots(tmp_path: Path) -> None:
    text = few_shot_report({"1": summary(60.0), "5": summary(80.0, None)}, folder(tmp_path), tmp_path).read_text()
    assert "<td>1</td><td>60.00 \N{PLUS-MINUS SIGN} 2.50</td>" in text and "<td>5</td><td>80.00</td>" in text
    assert Image.open(tmp_path / "shots.png").size[0] > 300


def test_a_saved_model(tmp_path: Path) -> None:
    text = model_report(summary(std=None), folder(tmp_path), tmp_path, model="m.mgcap").read_text()
    assert "m.mgcap on scenes" in text and "90.00 %" in text and "accuracy on 10 images" in text
