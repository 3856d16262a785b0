from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from mgcap.config import MGCAPConfig
from mgcap.report import demo_report, training_report
from tests.report.results import folder, summary


def _model(**more: Any) -> Any:
    return SimpleNamespace(
        model_=SimpleNamespace(config=MGCAPConfig(num_classes=2)),
        provenance_={"images": 40},
        engine_=SimpleNamespace(name="torch"),
        **{"history_": None, "metrics_": {}, **more},
    )


def test_a_frozen_model_with_a_test(tmp_path: Path) -> None:
    page = training_report(_model(), folder(tmp_path), tmp_path / "m.html", summary=summary(90.0, None))
    text = page.read_text()
    assert "MG-CAP trained on scenes" in text and "90.00 %" in text
    assert "95 % confidence interval 59.6 to 98.2" in text  # Wilson's for 9 of 10, as tables have it


def test_the_history_of_a_finetuned_model(tmp_path: Path) -> None:
    epochs = [{"epoch": 0, "loss": 1.5, "accuracy": 0.5}, {"epoch": 1, "loss": 0.25, "accuracy": 0.75}]
    steps = [{"epoch": e, "step": s, "loss": 1.0} for e in range(2) for s in range(2)]
    model = _model(history_=SimpleNamespace(epochs=epochs, steps=steps))
    text = training_report(model, folder(tmp_path), tmp_path / "m.html", logs=tmp_path / "run").read_text()
    assert "<tr><td>2</td><td>0.2500</td><td>75.00</td></tr>" in text and "accuracy, %" in text
    assert {path.name for path in (tmp_path / "run").iterdir()} == {"loss.png", "accuracy.png"}
    assert text.count("<img") == 2 and "confidence interval" not in text


def test_a_demonstration_without_a_map(tmp_path: Path) -> None:
    model = _model(metrics_={"summary": summary(95.0, None)})
    text = demo_report(model, folder(tmp_path).root, tmp_path / "demo.html", command="mgcap demo").read_text()
    assert "95.00 %" in text and "hectares" not in text and "mgcap demo" in text
