from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mgcap import SceneClassifier, progress_bars
from mgcap.errors import MgcapError
from mgcap.progress_bars import as_progress, bars
from mgcap.runtime import Progress, silent
from tests.conftest import TINY


def test_the_time_to_go_does_not_count_what_was_there_before(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [0.0]
    monkeypatch.setattr(progress_bars.time, "monotonic", lambda: now[0])
    with bars("Work", 100) as step:
        step(60)
        for _ in range(10):
            now[0] += 2
            step(1)
    assert "Work: 68 of 100, about 64 s to go" in capsys.readouterr().err


def test_where_progress_goes() -> None:
    own = Progress()
    assert as_progress(True) is bars and as_progress(False) is silent and as_progress(own) is own
    for wrong in ("yes", None, 3, print):
        with pytest.raises(MgcapError, match="progress: must be True, False or"):
            as_progress(wrong)  # type: ignore[arg-type]


def test_an_estimator_reports_on_standard_error_when_asked(scenes: Path, capsys: pytest.CaptureFixture[str]) -> None:
    images = np.random.default_rng(0).integers(0, 256, (6, 64, 64, 3), dtype=np.uint8)
    SceneClassifier(**TINY, cache=False).fit(images, [0, 1] * 3).predict(images)
    assert capsys.readouterr() == ("", "")
    SceneClassifier(**TINY, cache=False, progress=True).fit(images, [0, 1] * 3).predict(images)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert all(f"{title}: done" in shown.err for title in ("Extracting features", "Solving the head", "Classifying"))
