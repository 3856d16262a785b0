from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.run import run


def test_inference() -> None:
    options = "--preset compact --backbone alexnet --rotations 1 --set channels=8 --set size=64 --images 1 --repeats 1"
    report = json.loads(run("bench", "inference", *options.split(), "--json", "-").stdout)
    assert {"plain", "torch", "openvino_fp32", "openvino_int8"} <= set(report)


def test_map(scenes: Path, model: Path, write_raster: Any, picture: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The figures are those of :mod:`mgcap.geo.measured`, which has tests of its own."""
    asked: list[Any] = []

    def measured(classifier: Any, *given: Any) -> dict[str, Any]:
        asked.append(given)
        return {"tiles": 6, "seconds_search": 0.25, "shares": {"medium residential": 0.5}}

    def mosaics(classifier: Any, folder: Any, split: Any) -> dict[str, Any]:
        assert len(split.train) == 20 and len(split.test) == 4 and len(folder) == 24
        return {"accuracy_in_mosaics": 95.5}

    monkeypatch.setattr("mgcap.geo.measured.bench_map", measured)
    monkeypatch.setattr("mgcap.geo.measured.mosaic_accuracy", mosaics)
    monkeypatch.setattr("mgcap.classifier.SceneClassifier.fit", lambda self, *given: self)
    raster = write_raster(picture)
    options = ["bench", "map", raster, "--model", model, "--cells", "2", "--engine", "torch"]
    shown = run(*options).stdout
    assert "seconds search" in shown and "medium residential" in shown and "0.25" in shown
    report = json.loads(run(*options, "--test", scenes, "--json", "-").stdout)
    assert report["tiles"] == 6 and report["mosaics"] == {"accuracy_in_mosaics": 95.5}
    assert [given[:3] for given in asked] == [(model, raster, 2)] * 2
