from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy.optimize import minimize_scalar
from torch import Tensor

from mgcap.config import MGCAPConfig
from mgcap.inference.engines.torch import TorchEngine
from mgcap.inference.sample import LENGTH, Sketch
from mgcap.model import MGCAP
from mgcap.runtime import Runtime
from mgcap.training import outcome as module
from mgcap.training.composed import Composed, draw_folds
from mgcap.training.outcome import PURE, Outcome, solve_head
from mgcap.training.recipe import Finetune
from mgcap.training.setup import Setup, TrainingSet
from mgcap.training.softmax import HeadSolver

COUNT, WINDOWS = 30, 40


@pytest.fixture
def model() -> MGCAP:
    config = MGCAPConfig(preset="compact", num_classes=3, backbone="alexnet", layer="conv1", channels=6, size=64)
    return MGCAP(config).eval().requires_grad_(False)


@pytest.fixture
def data() -> TrainingSet:
    """Images of a colour by class."""
    targets = [i % 3 for i in range(COUNT)]
    images = [np.full((20, 30, 3), 40 + 80 * k, np.uint8) for k in targets]
    return TrainingSet(images, targets, ["a", "b", "c"])


def _rows(targets: Tensor, length: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    centres = torch.randn(3, length, generator=torch.Generator().manual_seed(9))
    noise = torch.randn(len(targets), length, generator=generator)
    return F.normalize(0.5 * targets.float() @ centres + noise, dim=1)


@pytest.fixture
def rows(data: TrainingSet, model: MGCAP) -> Tensor:
    return _rows(F.one_hot(torch.tensor(data.targets), 3), model.head.in_features, 0)


@pytest.fixture
def windows(model: MGCAP, monkeypatch: pytest.MonkeyPatch) -> Composed:
    """Windows that nobody had to look at; half of them show one class."""
    drawn = np.random.default_rng(5).dirichlet([0.7] * 3, WINDOWS)
    drawn[::2] = 0.05 + 0.85 * np.eye(3)[np.arange(WINDOWS // 2) % 3]
    shares = torch.from_numpy(drawn).float()
    made = Composed(_rows(shares, model.head.in_features, 1), shares, np.arange(WINDOWS) % 5)
    monkeypatch.setattr(module, "composed_windows", lambda *given: made)
    return made


def _solved(model: MGCAP, rows: Tensor, data: TrainingSet, **given: Any) -> Outcome:
    found = Outcome(list(range(len(data))), [], TorchEngine(model.backbones))
    solve_head(Setup(runtime=Runtime(seed=3), **given), model, rows, data, found)
    return found


def test_the_head_is_that_of_the_images(model: MGCAP, rows: Tensor, data: TrainingSet) -> None:
    found = _solved(model, rows, data)
    folds = draw_folds(np.array(data.targets), 3)
    solver = HeadSolver(rows, data.targets, 3, folds=folds.tolist())
    solution = solver.solve(seed=3)
    torch.testing.assert_close(model.head.weight, solver.head(solution).weight)
    assert solution.cv_logits is not None and found.held_out is not None
    assert (found.regularisation, found.temperature) == (solution.regularisation, None)
    torch.testing.assert_close(found.held_out, solution.cv_logits.double().softmax(1))
    right = (found.held_out.argmax(1) == torch.tensor(data.targets)).double().mean()
    assert found.cv_accuracy == pytest.approx(float(right))


def test_the_sample_is_of_all_images(model: MGCAP, rows: Tensor, data: TrainingSet) -> None:
    sample = _solved(model, rows, data).sample
    assert sample is not None and sample.vectors.shape == (COUNT, LENGTH)
    assert sample.targets.tolist() == list(data.targets)
    torch.testing.assert_close(sample.mean, Sketch(rows.shape[1])(rows).mean(0))
    pictures = sample.pictures()
    assert pictures is not None and len(pictures) == COUNT
    for number, picture in zip(data.targets, pictures, strict=True):
        assert np.abs(picture.astype(int) - (40 + 80 * number)).max() < 8


def test_windows_count_as_much_as_all_images(model: MGCAP, rows: Tensor, data: TrainingSet, windows: Composed) -> None:
    """Also where images count differently; the oracle has every weight written out."""
    weights = np.random.default_rng(1).uniform(0.5, 2, COUNT).tolist()
    data = TrainingSet(data.items, data.targets, data.classes, weights)
    found = _solved(model, rows, data, composed=40, regularisation=1e-3)
    targets = torch.cat([F.one_hot(torch.tensor(data.targets), 3).float(), windows.shares])
    every = [*weights, *[sum(weights) / WINDOWS] * WINDOWS]
    solver = HeadSolver(torch.cat([rows, windows.rows]), targets, 3, every)
    expected = solver.head(solver.solve(None, (1e-3,)))
    torch.testing.assert_close(model.head.weight, expected.weight)
    torch.testing.assert_close(model.head.bias, expected.bias)
    assert found.held_out is None and found.temperature is None and found.cv_accuracy is None
    assert found.sample is not None and len(found.sample.vectors) == COUNT + WINDOWS


def test_probabilities_of_windows_mean_what_they_say(
    model: MGCAP, rows: Tensor, data: TrainingSet, windows: Composed
) -> None:
    """The temperature is the one that a search finds for held-out images and windows; the accuracy is of images."""
    found = _solved(model, rows, data, composed=40)
    folds = np.concatenate([draw_folds(np.array(data.targets), 3), windows.folds])
    targets = torch.cat([F.one_hot(torch.tensor(data.targets), 3).float(), windows.shares])
    weights = [1.0] * COUNT + [COUNT / WINDOWS] * WINDOWS
    solver = HeadSolver(torch.cat([rows, windows.rows]), targets, 3, weights, folds.tolist())
    solution = solver.solve(seed=3)
    assert solution.cv_logits is not None and found.held_out is not None
    logits = solution.cv_logits.double()
    best = minimize_scalar(
        lambda t: float(F.cross_entropy(logits / np.exp(t), targets.double())), bounds=(-4, 4), method="bounded"
    )
    assert found.temperature == pytest.approx(np.exp(best.x), rel=1e-3)
    torch.testing.assert_close(model.head.weight, solver.head(solution).weight / found.temperature)
    torch.testing.assert_close(found.held_out, (logits[:COUNT] / found.temperature).softmax(1))
    right = (logits[:COUNT].argmax(1) == torch.tensor(data.targets)).double().mean()
    assert found.cv_accuracy == pytest.approx(float(right))


def test_windows_of_several_classes_do_not_say_which_distances_are_usual(
    model: MGCAP, rows: Tensor, data: TrainingSet, windows: Composed
) -> None:
    sample = _solved(model, rows, data, composed=40).sample
    assert sample is not None and int(sample.pictured) == COUNT
    assert sample.targets[COUNT:].tolist() == windows.shares.argmax(1).tolist()
    every = Sketch(rows.shape[1])(torch.cat([rows, windows.rows])).double()
    every = F.normalize(every - every.mean(0), dim=1).numpy()
    folds = np.concatenate([draw_folds(np.array(data.targets), 3), windows.folds])
    apart = np.where(folds[:, None] != folds, 1 - every @ every.T, np.inf).min(1)
    usual = np.concatenate([np.ones(COUNT, bool), windows.shares.numpy().max(1) >= PURE])
    assert COUNT + WINDOWS // 2 <= usual.sum() < COUNT + WINDOWS
    for alpha in (0.05, 0.3, 0.6):
        assert sample.threshold(alpha) == pytest.approx(np.quantile(apart[usual], 1 - alpha), abs=2e-3)


def test_a_head_for_fine_tuning_keeps_no_sample(model: MGCAP, rows: Tensor, data: TrainingSet) -> None:
    """What the network sees changes afterwards."""
    for head in ("exact", "sgd"):
        before = model.head.weight.clone()
        found = _solved(model, rows, data, finetune=Finetune(head=head, head_epochs=2))
        assert found.sample is None and not torch.equal(model.head.weight, before)
