from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from mgcap.classifier import SceneClassifier
from mgcap.data.folders import open_folder
from mgcap.errors import DataError, MgcapError
from mgcap.persistence.export import FORMATS, agreement, export_model, open_exported
from tests.conftest import TINY

EXAMPLE = Path(__file__).parents[2] / "examples" / "predict_onnx.py"


@pytest.fixture(scope="module")
def classifier(scenes: Path) -> SceneClassifier:
    folder = open_folder(scenes)
    config = {**TINY, "granularities": (1.0, 0.8), "rotations": 4, "cache": False, "resolution": 0.5}
    return SceneClassifier(**config).fit(folder.paths, folder.labels)


@pytest.mark.parametrize("form", FORMATS)
def test_an_exported_model_says_the_same(
    classifier: SceneClassifier, form: str, tmp_path: Path, scenes: Path, rng: np.random.Generator
) -> None:
    if form == "openvino":
        pytest.importorskip("openvino")
    path = tmp_path / f"model{FORMATS[form]}"
    assert export_model(classifier, form, path) < 1e-4
    run = open_exported(path)
    for count in (1, 5):  # any number of images
        images = rng.random((count, 3, 64, 64), dtype=np.float32)
        expected = classifier.predict_proba(list(torch.from_numpy(images)))
        assert np.allclose(run(images), expected, atol=1e-3)
    assert agreement(classifier, run, open_folder(scenes).paths, 64) == 1.0
    assert not [p for p in tmp_path.iterdir() if p.name.startswith(".")]


def test_onnx_runs_without_us_and_knows_its_classes(classifier: SceneClassifier, tmp_path: Path, scenes: Path) -> None:
    import onnxruntime

    path = tmp_path / "model.onnx"
    export_model(classifier, "onnx", path)
    notes = onnxruntime.InferenceSession(str(path)).get_modelmeta().custom_metadata_map
    assert json.loads(notes["classes"]) == list(classifier.classes_)
    assert json.loads(notes["preprocessing"])["side"] == 64
    assert json.loads(notes["resolution"]) == 50.0
    assert json.loads(notes["class_names"])["0"] == classifier.classes_[0]
    image = open_folder(scenes).paths[0]
    done = subprocess.run([sys.executable, EXAMPLE, path, image], capture_output=True, text=True, check=True)
    name, label, probability = done.stdout.strip().split(",")
    assert (name, label) == (str(image), classifier.predict([image])[0])
    assert float(probability) == pytest.approx(classifier.predict_proba([image]).max(), abs=2e-3)


def test_models_with_an_eigendecomposition_are_refused(scenes: Path, tmp_path: Path) -> None:
    folder = open_folder(scenes)
    log = SceneClassifier(**{**TINY, "normalisation": "log", "cache": False}).fit(folder.paths, folder.labels)
    with pytest.raises(MgcapError, match="sqrt"):
        export_model(log, "onnx", tmp_path / "m.onnx")
    assert not list(tmp_path.iterdir())


def test_bad_targets_are_refused(classifier: SceneClassifier, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="'tflite' is unknown"):
        export_model(classifier, "tflite", tmp_path / "m.onnx")
    with pytest.raises(DataError, match=r"a \.onnx file"):
        export_model(classifier, "onnx", tmp_path / "m.xml")


def test_a_file_that_differs_is_thrown_away(
    classifier: SceneClassifier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "mgcap.persistence.export.open_exported", lambda path: lambda images: np.full((len(images), 4), 0.25)
    )
    with pytest.raises(MgcapError, match="thrown away"):
        export_model(classifier, "pt2", tmp_path / "m.pt2")
    assert not list(tmp_path.iterdir())
