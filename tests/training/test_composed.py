from __future__ import annotations

import math
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from mgcap.config import MGCAPConfig
from mgcap.data.composed import ACROSS
from mgcap.errors import MgcapError
from mgcap.inference.engines.torch import TorchEngine
from mgcap.model import MGCAP
from mgcap.runtime import Progress, Runtime
from mgcap.training import composed as module
from mgcap.training.composed import FOLDS, WINDOWS, Composed, composed_windows, draw_folds
from mgcap.training.setup import TrainingSet

SIDE = 40


@pytest.mark.parametrize("counts", [(10, 15, 30), (5, 7, 6), (3, 9, 4)])
def test_folds_have_all_classes_alike(counts: tuple[int, ...]) -> None:
    targets = np.random.default_rng(0).permutation(np.repeat(range(len(counts)), counts))
    folds = draw_folds(targets, 0)
    assert sorted(set(folds.tolist())) == list(range(min(FOLDS, *counts)))
    for number, count in enumerate(counts):
        own = np.bincount(folds[targets == number], minlength=folds.max() + 1)
        assert own.max() - own.min() <= 1 and own.sum() == count
    assert np.array_equal(folds, draw_folds(targets, 0)) and not np.array_equal(folds, draw_folds(targets, 1))


@pytest.mark.parametrize(("targets", "count"), [([0, 1, 1, 1, 1, 1, 1], 5), ([0, 1, 1], 3), ([2, 5], 2)])
def test_a_class_with_one_image_is_in_some_fold(targets: list[int], count: int) -> None:
    folds = draw_folds(np.array(targets), 0)
    assert sorted(set(folds.tolist())) == list(range(count))


@pytest.fixture(scope="module")
def model() -> MGCAP:
    config = MGCAPConfig(
        preset="compact", num_classes=4, backbone="alexnet", layer="conv1", reduction="none", channels=None, size=64,
        rotations=4, granularities=(1.0,), field_of_view=1.0,
    )  # fmt: skip
    torch.manual_seed(0)
    return MGCAP(config).eval().requires_grad_(False)


@pytest.fixture(scope="module")
def data() -> TrainingSet:
    """Images of four classes; the first two are in folds of their own, so are the last two."""
    rng = np.random.default_rng(0)
    coarse = torch.from_numpy(rng.random((12, 3, SIDE // 4, SIDE // 4))).float()
    pixels = F.interpolate(coarse, (SIDE, SIDE), mode="bilinear").clamp(0, 1)
    return TrainingSet([p.permute(1, 2, 0).numpy() for p in pixels], [0, 1, 0, 1, 0, 1, 2, 3, 2, 3, 2, 3], list("abcd"))


FOLD = np.repeat([0, 1], 6)


class _Scene:
    """What scenes were described, and how."""

    def __init__(self, patched: pytest.MonkeyPatch) -> None:
        self.scenes: list[tuple[torch.Tensor, np.ndarray, list[list[int]]]] = []
        self.blocks: list[tuple[Any, torch.Tensor]] = []
        compose, describe = module.compose, module.describe_block

        def composing(read: Any, mosaics: list[list[int]], *given: Any) -> Any:
            found = compose(read, mosaics, *given)
            self.scenes.append((*found, mosaics))
            return found

        def describing(model: Any, engine: Any, layout: Any, image: torch.Tensor, chosen: Any) -> Any:
            self.blocks.append((layout, image))
            return describe(model, engine, layout, image, chosen)

        patched.setattr(module, "compose", composing)
        patched.setattr(module, "describe_block", describing)


@pytest.fixture(scope="module")
def found(model: MGCAP, data: TrainingSet) -> tuple[Composed, _Scene]:
    with pytest.MonkeyPatch.context() as patched:
        scene = _Scene(patched)
        return composed_windows(model, TorchEngine(model.backbones), data, FOLD, 300, Runtime(seed=3)), scene


def test_there_are_whole_scenes_of_every_fold(found: tuple[Composed, _Scene]) -> None:
    windows, scene = found
    assert len(windows.rows) == len(windows.shares) == len(windows.folds) == 2 * WINDOWS**2  # 300, rounded up
    assert np.bincount(windows.folds).tolist() == [WINDOWS**2] * 2
    for number, (_, _, mosaics) in enumerate(scene.scenes):
        assert {FOLD[member] for own in mosaics for member in own} == {number}
        assert [len(own) for own in mosaics] == [ACROSS**2] * 2
    shares = windows.shares.numpy()
    np.testing.assert_allclose(shares.sum(1), 1, atol=1e-5)
    assert shares[windows.folds == 0][:, 2:].max() == 0 and shares[windows.folds == 1][:, :2].max() == 0
    assert 0.01 < (shares.max(1) < 0.95).mean() < 1  # some show several classes


def test_windows_are_what_the_model_says_of_the_same_pixels(found: tuple[Composed, _Scene], model: MGCAP) -> None:
    windows, scene = found
    likeness, apart = [], []
    for number, ((pixels, classes, _), (layout, _)) in enumerate(zip(scene.scenes, scene.blocks, strict=True)):
        own = slice(number * WINDOWS**2, (number + 1) * WINDOWS**2)
        rows, shares = windows.rows[own], windows.shares[own].numpy()
        middle = pixels.shape[-1] / 2
        places = [(round(y + middle - SIDE / 2), round(x + middle - SIDE / 2)) for y in layout.ys for x in layout.xs]
        assert min(map(min, places)) >= 0 and max(map(max, places)) <= pixels.shape[-1] - SIDE
        for i in range(0, len(places), 13):
            top, left = places[i]
            square = classes[top : top + SIDE, left : left + SIDE]
            assert shares[i].tolist() == pytest.approx([(square == k).mean() for k in range(4)], abs=1e-6)
            expected = model.descriptor(pixels[None, :, top : top + SIDE, left : left + SIDE])[0]
            likeness.append(float(F.cosine_similarity(rows[i], expected, 0)))
            apart.append(float(F.cosine_similarity(rows[(i + 50) % len(rows)], expected, 0)))
    # positions are whole, borders are those of the scene: alike, not the same
    assert np.mean(likeness) > 0.97 and np.mean(np.array(likeness) > apart) > 0.9


def test_the_seed_decides_and_large_images_are_made_smaller(
    model: MGCAP, data: TrainingSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LARGEST", 16)
    monkeypatch.setattr(module, "WINDOWS", 3)
    engine, seen = TorchEngine(model.backbones), []
    for seed in (0, 0, 1):
        steps = _Counting()
        with pytest.MonkeyPatch.context() as patched:
            scene = _Scene(patched)
            seen.append(composed_windows(model, engine, data, FOLD, 5, Runtime(seed=seed, progress=steps)))
        assert {pixels.shape for pixels, _, _ in scene.scenes} == {(3, 16 * ACROSS, 16 * ACROSS)}
        assert steps.done == steps.total == len(seen[-1].rows) == 2 * 9
    assert torch.equal(seen[0].rows, seen[1].rows) and torch.equal(seen[0].shares, seen[1].shares)
    assert not torch.equal(seen[0].shares, seen[2].shares) and math.isfinite(float(seen[2].rows.sum()))


class _Counting(Progress):
    """Progress that is counted."""

    done = total = 0

    def __call__(self, title: str, total: int | None) -> Any:
        self.total = total or 0
        return nullcontext(self.step)

    def step(self, count: int) -> None:
        self.done += count


def test_networks_that_look_at_views_alone_are_refused(
    model: MGCAP, data: TrainingSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "is_dense", lambda model: False)
    with pytest.raises(MgcapError, match="composed: alexnet cannot look at scenes larger"):
        composed_windows(model, TorchEngine(model.backbones), data, FOLD, 100, Runtime())
