from __future__ import annotations

import io
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from mgcap.config import MGCAPConfig
from mgcap.errors import MgcapError
from mgcap.inference import sample as module
from mgcap.inference.projection import Projection
from mgcap.inference.sample import (
    LENGTH,
    Sketch,
    TrainingSample,
    reduce_rows,
    reduced_by,
    take_sample,
    with_pictures,
)
from mgcap.model import MGCAP
from mgcap.persistence.layout import QUANTILES

COUNT, CLASSES, SIZE = 90, 3, 12


@pytest.fixture(scope="module")
def reduced() -> torch.Tensor:
    """Three clouds, far from the origin."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(CLASSES, SIZE))
    return torch.from_numpy(5 + centres[np.arange(COUNT) % CLASSES] + 0.3 * rng.normal(size=(COUNT, SIZE))).float()


@pytest.fixture(scope="module")
def targets() -> np.ndarray:
    return np.arange(COUNT) % CLASSES


@pytest.fixture(scope="module")
def folds() -> np.ndarray:
    return np.random.default_rng(1).permutation(np.arange(COUNT) % 5)


@pytest.fixture(scope="module")
def sample(reduced: torch.Tensor, targets: np.ndarray, folds: np.ndarray) -> TrainingSample:
    return take_sample(reduced, targets, folds, np.ones(COUNT, bool), COUNT)[0]


def _far(rows: np.ndarray, others: np.ndarray, mean: np.ndarray) -> np.ndarray:
    """One minus the cosine of each row to each other, from the mean, as it is written in books."""
    found = np.empty((len(rows), len(others)))
    for i, a in enumerate(rows.astype(np.float64) - mean):
        for j, b in enumerate(others.astype(np.float64) - mean):
            found[i, j] = 1 - a @ b / np.sqrt((a @ a) * (b @ b))
    return found


def test_a_sketch_is_sums_of_entries_with_signs_and_keeps_inner_products() -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(40, 3000))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    rows[1] = 0.8 * rows[0] + 0.6 * rows[1]
    given = torch.from_numpy(rows).float()
    found = Sketch(3000)(given)
    assert found.shape == (40, LENGTH)
    assert torch.equal(found, Sketch(3000)(given)) and torch.equal(found[:7], Sketch(3000)(given[:7]))
    single = Sketch(3000)(torch.eye(3000)).numpy()  # each entry goes to one place, with a sign
    assert (np.abs(single).sum(1) == 1).all() and (single != 0).any(0).all()
    assert abs(single.sum(1).mean()) < 0.1
    np.testing.assert_allclose(found.numpy(), rows @ single, atol=1e-5)
    error = found.double().numpy() @ found.double().numpy().T - rows @ rows.T
    assert np.abs(error).mean() < 1.5 / np.sqrt(LENGTH)


def test_distances_are_those_of_each_fold_from_the_others(
    reduced: torch.Tensor, targets: np.ndarray, folds: np.ndarray
) -> None:
    usual = np.arange(COUNT) % 4 != 0
    found, chosen = take_sample(reduced, targets, folds, usual, COUNT)
    rows = reduced.numpy()
    assert chosen.tolist() == list(range(COUNT))
    apart = np.where(folds[:, None] != folds, _far(rows, rows, rows.astype(np.float64).mean(0)), np.inf).min(1)
    np.testing.assert_allclose(found.distances, np.quantile(apart[usual], np.linspace(0, 1, QUANTILES)), atol=1e-5)
    assert found.targets.tolist() == targets.tolist() and found.vectors.dtype == torch.int8
    for alpha in (0.05, 0.1, 0.5):
        assert (apart[usual] > found.threshold(alpha)).mean() == pytest.approx(alpha, abs=2 / usual.sum())


@pytest.mark.parametrize("together", [16_384, 7])
def test_the_nearest_are_found_whatever_is_compared_together(
    sample: TrainingSample, reduced: torch.Tensor, together: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "TOGETHER", together)
    rows = 5 + torch.from_numpy(np.random.default_rng(2).normal(size=(20, SIZE))).float()
    every = _far(rows.numpy(), reduced.numpy(), reduced.double().mean(0).numpy())
    distances, numbers = sample.nearest(rows, 4)
    np.testing.assert_allclose(distances, np.sort(every, 1)[:, :4], atol=0.01)  # 8 bits a number
    np.testing.assert_allclose(np.take_along_axis(every, numbers.numpy(), 1), distances, atol=0.01)
    np.testing.assert_allclose(sample.distance(rows), every.min(1), atol=0.01)
    assert sample.nearest(rows, 1000)[0].shape == (20, COUNT)
    assert sample.distance(rows[:0]).shape == (0,)


def test_what_was_seen_is_near_and_what_is_on_the_other_side_is_far(
    sample: TrainingSample, reduced: torch.Tensor
) -> None:
    assert sample.distance(reduced).max() < 0.01
    limit = sample.threshold(0.01)
    mirrored = 2 * sample.mean - reduced
    assert (sample.distance(mirrored) > limit).float().mean() > 0.9


def test_where_there_are_too_many_images_go_before_windows(
    reduced: torch.Tensor, targets: np.ndarray, folds: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BYTES", 50 * SIZE)
    every = np.ones(COUNT, bool)
    found, chosen = take_sample(reduced, targets, folds, every, 30)
    assert found.vectors.nbytes == 50 * SIZE and chosen[:30].tolist() == list(range(30))
    assert len(set(chosen.tolist())) == 50 and found.targets.tolist() == targets[chosen].tolist()
    other, drawn = take_sample(reduced, targets, folds, every, COUNT, seed=1)
    assert len(drawn) == 50 and drawn.tolist() != chosen.tolist() and (np.diff(drawn) > 0).all()
    again = take_sample(reduced, targets, folds, every, COUNT, seed=1)[0]
    assert torch.equal(other.vectors, again.vectors) and torch.equal(other.distances, again.distances)
    mean = reduced.double().numpy()[drawn].mean(0)  # those that are left out say which distances are usual, too
    apart = np.where(folds[:, None] != folds[drawn], _far(reduced.numpy(), reduced.numpy()[drawn], mean), np.inf)
    assert other.distances[-1] == pytest.approx(apart.min(1).max(), abs=1e-5)


def test_without_held_out_images_nothing_is_far(reduced: torch.Tensor, targets: np.ndarray) -> None:
    for folds, usual in ((np.zeros(COUNT, int), np.ones(COUNT, bool)), (targets, np.zeros(COUNT, bool))):
        found, _ = take_sample(reduced, targets, folds, usual, COUNT)
        assert found.threshold(0.01) == 2  # no cosine is less than minus one


@pytest.mark.parametrize("alpha", [0.0, 1.0, -0.1, 2.0, float("nan")])
def test_impossible_shares_are_refused(sample: TrainingSample, alpha: float) -> None:
    with pytest.raises(MgcapError, match="`unknown` takes 0"):
        sample.threshold(alpha)


def _pictures(count: int) -> list[np.ndarray]:
    """Pictures of a colour each."""
    rng = np.random.default_rng(3)
    return [np.full((64, 64, 3), rng.integers(30, 226, 3), np.uint8) for _ in range(count)]


@pytest.mark.parametrize("count", [1, 2, 7, 16])
def test_pictures_come_back_in_their_order(sample: TrainingSample, count: int) -> None:
    given = _pictures(count)
    found = with_pictures(sample, given)
    back = found.pictures()
    assert back is not None and back.shape == (count, 64, 64, 3) and int(found.pictured) == count
    for before, after in zip(given, back, strict=True):
        assert np.abs(after[16:48, 16:48].mean((0, 1)) - before[0, 0]).max() < 6
    assert torch.equal(found.vectors, sample.vectors) and sample.pictures() is None


def test_many_pictures_are_smaller(sample: TrainingSample, monkeypatch: pytest.MonkeyPatch) -> None:
    noise = [np.random.default_rng(n).integers(0, 256, (64, 64, 3), dtype=np.uint8) for n in range(9)]
    whole = with_pictures(sample, noise)
    monkeypatch.setattr(module, "_SHEET_BYTES", whole.sheet.nbytes // 2)
    found = with_pictures(sample, noise)
    assert found.sheet.nbytes <= whole.sheet.nbytes // 2
    assert found.pictures().shape[1] in (48, 40, 32)  # type: ignore[union-attr]


def test_the_most_pictures_fit_whatever_they_show(sample: TrainingSample, monkeypatch: pytest.MonkeyPatch) -> None:
    most = module.BYTES // LENGTH
    monkeypatch.setattr(module, "_SHEET_BYTES", module._SHEET_BYTES * 400 // most)
    noise = list(np.random.default_rng(4).integers(0, 256, (400, 64, 64, 3), dtype=np.uint8))
    found = with_pictures(sample, noise)
    assert found.sheet.nbytes <= module._SHEET_BYTES
    assert int(found.pictured) == len(found.pictures()) == 400  # type: ignore[arg-type]


def _file(width: int, height: int, form: str = "WEBP") -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (width, height)).save(buffer, form)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("content", "count"),
    [
        (b"", 4), (b"RIFF\0\0\0\0WEBPVP8 ", 4), (_file(128, 128)[:40], 4), (_file(128, 128, "PNG"), 4),
        (_file(128, 64), 4), (_file(129, 128), 4), (_file(1, 1), 4), (_file(8200, 2), 1), (_file(128, 128), 0),
    ],
)  # fmt: skip
def test_a_strange_sheet_has_no_pictures(sample: TrainingSample, content: bytes, count: int) -> None:
    assert replace(sample, sheet=_bytes(_file(128, 128)), pictured=torch.tensor(4)).pictures() is not None
    assert replace(sample, sheet=_bytes(content), pictured=torch.tensor(count)).pictures() is None


def _bytes(content: bytes) -> torch.Tensor:
    return torch.from_numpy(np.frombuffer(content, np.uint8).copy())


@pytest.fixture(scope="module")
def model() -> MGCAP:
    config = MGCAPConfig(preset="compact", num_classes=2, backbone="alexnet", layer="conv1", channels=8, size=64)
    return MGCAP(config)


def test_models_without_a_projection_have_sketches(model: MGCAP) -> None:
    rows = torch.randn(2100, model.head.in_features, generator=torch.Generator().manual_seed(0))
    assert torch.equal(reduce_rows(model, rows), Sketch(model.head.in_features)(rows))
    assert reduced_by(model) == f"sketch-{LENGTH}"


def test_vectors_of_an_index_are_those_of_its_descriptors(model: MGCAP, monkeypatch: pytest.MonkeyPatch) -> None:
    length = model.head.in_features
    generator = torch.Generator().manual_seed(0)
    axes = torch.linalg.qr(torch.randn(length, length - 3, generator=generator))[0].T
    shipped = Projection(torch.randn(length, generator=generator), axes)
    monkeypatch.setattr(module, "projection_for", lambda model: shipped)
    monkeypatch.setattr(module, "LENGTH", 5)
    rows = torch.randn(6, length, generator=generator)
    expected = (rows - shipped.mean) @ axes.T[:, :5]
    torch.testing.assert_close(reduce_rows(model, rows), expected)
    torch.testing.assert_close(reduce_rows(model, shipped(rows)), expected)
    assert reduced_by(model) == shipped.fingerprint != ""
