from __future__ import annotations

import json

import pytest

from mgcap.bench import presets
from tests.cli.run import run


def test_presets_are_listed_with_accuracy_and_time(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = run("presets")
    assert all(options in shown.stdout for options in presets.POINTS) and "accuracy, 80% to train" in shown.stdout
    assert "ms here" not in shown.stdout and "UC Merced" in shown.stderr
    monkeypatch.setattr(presets, "milliseconds", lambda config: 12.25)
    assert "ms here" in run("presets", "--measure").stdout
    points = json.loads(run("presets", "--measure", "--json", "-").stdout)["points"]
    assert [own["options"] for own in points] == list(presets.POINTS)
    assert all(own["milliseconds_here"] == 12.25 for own in points)
