from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mgcap import MGCAP, MGCAPConfig, SceneClassifier
from mgcap.data.folders import open_folder
from mgcap.errors import MgcapError
from mgcap.evaluation import summary
from mgcap.evaluation.metrics import expected_calibration_error
from mgcap.training.temperature import cool, fit_temperature
from tests.conftest import TINY


@settings(deadline=None, max_examples=20)
@given(st.floats(0.2, 5))
def test_the_temperature_is_found_again(temperature: float) -> None:
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(4000, 5, generator=generator).double()
    targets = torch.multinomial(logits.softmax(1), 1, generator=generator)[:, 0]
    assert fit_temperature(logits * temperature, targets) == pytest.approx(temperature, rel=0.1)


def test_perfect_logits_have_a_finite_temperature() -> None:
    temperature = fit_temperature(torch.eye(3) * 10, torch.arange(3))
    assert 0 < temperature < 1


def test_cooling_makes_a_model_as_sure_as_it_is_right() -> None:
    """Classes are drawn from logits three times as large as the model's."""
    torch.manual_seed(0)
    model = MGCAP(MGCAPConfig(backbone="alexnet", channels=6, num_classes=4))
    rows = torch.randn(2000, model.head.in_features)
    with torch.no_grad():
        logits = model.head(rows).double()
    before, targets = logits.softmax(1), torch.multinomial((3 * logits).softmax(1), 1)[:, 0]
    temperature, after = cool(model, before, targets)
    assert temperature == pytest.approx(1 / 3, rel=0.1)
    with torch.no_grad():
        assert torch.allclose(model.head(rows).double().softmax(1), after, atol=1e-5)
    assert torch.equal(before.argmax(1), after.argmax(1))
    assert expected_calibration_error(after, targets) < expected_calibration_error(before, targets) / 3


def test_a_few_right_images_do_not_make_a_model_certain() -> None:
    model = MGCAP(MGCAPConfig(backbone="alexnet", channels=6, num_classes=3))
    few = torch.tensor([[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.1, 0.1, 0.8]])
    _, after = cool(model, few, torch.arange(3))
    spread = 1 / 5 * 2 / 3  # a fifth of each label is spread over three classes
    assert after.diagonal().numpy() == pytest.approx(1 - spread, abs=1e-4)


def test_finetuning_with_a_validation_part_keeps_its_temperature(scenes: Path, tmp_path: Path) -> None:
    folder = open_folder(scenes)
    options = {"epochs": 1, "batch": 6, "head_epochs": 2, "validation": 0.3, "label_smoothing": 0.3}
    model = SceneClassifier(**TINY, finetune=options).fit(folder.paths, folder.labels)
    temperature = model.metrics_["temperature"]
    assert temperature != 1
    model.save(tmp_path / "m.mgcap")
    loaded = SceneClassifier.load(tmp_path / "m.mgcap", engine="torch")
    run = summary.tested(loaded, folder, lambda i, error: None)
    assert run["temperature"] == temperature
    proba = torch.from_numpy(loaded.predict_proba(folder.paths))
    targets = torch.tensor(folder.targets)
    assert run["ece_calibrated"] == pytest.approx(expected_calibration_error(proba, targets))
    warm = (proba.log() * temperature).softmax(1)
    assert run["ece"] == pytest.approx(expected_calibration_error(warm, targets))
    without = {**options, "validation": 0.0}
    plain = SceneClassifier(**TINY, finetune=without).fit(folder.paths, folder.labels)
    assert "temperature" not in plain.metrics_
    with pytest.raises(MgcapError, match=r"train it with validation=0\.1"):
        plain.reject_threshold(0.05)
    assert 0 < loaded.reject_threshold(0.05) <= 1
    assert np.isfinite(plain.predict_proba(folder.paths)).all()
