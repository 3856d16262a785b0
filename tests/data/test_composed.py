from __future__ import annotations

import itertools
import math
from collections import Counter

import numpy as np
import pytest
import torch
from scipy.ndimage import binary_dilation

from mgcap.data import composed
from mgcap.data.composed import ACROSS, compose, in_turn, shares

SIDE = 16
#: Of four classes.
COLOURS = torch.tensor([[1.0, 0.1, 0.1], [0.1, 1.0, 0.1], [0.1, 0.1, 1.0], [0.9, 0.9, 0.2]])
TARGETS = np.array([0, 1, 2, 3] * 5)


def _flat(number: int) -> torch.Tensor:
    """An image of one colour, of a size of its own."""
    return COLOURS[TARGETS[number]][:, None, None].expand(3, 20 + number, 31)


def _mosaics(first: list[int], second: list[int]) -> list[list[int]]:
    return [list(itertools.islice(itertools.cycle(own), ACROSS**2)) for own in (first, second)]


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the light that they were taken in."""
    monkeypatch.setattr(composed, "LIGHT", 0.0)
    monkeypatch.setattr(composed, "COLOUR", 0.0)


def test_members_come_as_often_as_each_other_in_random_order() -> None:
    turns = in_turn([3, 5, 8], 4, np.random.default_rng(0))
    found = [next(turns) for _ in range(5)]
    assert [len(own) for own in found] == [4] * 5
    count = Counter(itertools.chain(*found))
    assert set(count) == {3, 5, 8} and max(count.values()) - min(count.values()) <= 1
    whole = list(itertools.chain(*found))
    assert all(sorted(whole[i : i + 3]) == [3, 5, 8] for i in range(0, 18, 3))
    assert len({tuple(whole[i : i + 3]) for i in range(0, 18, 3)}) > 1


def test_every_pixel_has_the_class_of_its_image(plain: None) -> None:
    """Images have a colour by class, so each pixel says its own class, but for the soft borders of patches."""
    side, mosaics = 3 * SIDE, _mosaics(list(range(20)), list(range(19, -1, -1)))
    pixels, classes = compose(_flat, mosaics, TARGETS, side, np.random.default_rng(0))
    assert pixels.shape == (3, ACROSS * side, ACROSS * side) and classes.shape == pixels.shape[1:]
    away = (pixels[None] - COLOURS[:, :, None, None]).abs().amax(1)
    border = np.zeros(classes.shape, bool)
    for axis in (0, 1):
        changes = np.diff(classes, axis=axis) != 0
        border |= np.pad(changes, [(0, 1) if own == axis else (0, 0) for own in (0, 1)])
    inside = ~binary_dilation(border, iterations=6)
    assert inside.mean() > 0.2
    assert (away.argmin(0).numpy()[inside] == classes[inside]).all()
    assert np.quantile(away.amin(0).numpy()[inside], 0.99) < 0.05


def test_half_of_a_scene_is_of_either_mosaic(plain: None) -> None:
    seen = []
    for seed in range(5):
        _, classes = compose(_flat, _mosaics([0], [2]), TARGETS, SIDE, np.random.default_rng(seed))
        assert set(np.unique(classes)) == {0, 2}
        seen.append((classes == 0).mean())
        changes = (np.diff(classes, axis=0) != 0).sum() + (np.diff(classes, axis=1) != 0).sum()
        assert changes < classes.size / 4  # patches, not noise
    assert seen == pytest.approx([0.5] * 5, abs=0.05)


def test_images_of_the_second_mosaic_lie_elsewhere() -> None:
    """So borders of both mosaics are not at the same places."""
    corners = set()
    for seed in range(4):
        _, classes = compose(_flat, _mosaics([0], [1, 2, 3]), TARGETS, SIDE, np.random.default_rng(seed))
        changes = np.argwhere((np.diff(classes, axis=1) != 0) & (classes[:, 1:] > 0) & (classes[:, :-1] > 0))
        corners |= {int(column) % SIDE for _, column in changes}
    assert len(corners - {SIDE - 1}) >= 2


def test_the_seed_decides_everything() -> None:
    mosaics = _mosaics([0, 1, 2], [3, 4])
    first, again, other = (compose(_flat, mosaics, TARGETS, SIDE, np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert torch.equal(first[0], again[0]) and np.array_equal(first[1], again[1])
    assert not torch.equal(first[0], other[0]) and not np.array_equal(first[1], other[1])


def test_light_scale_and_rotation_change() -> None:
    """Of one image: a ramp along x, whose direction and steepness show how it was rotated and scaled."""
    ramp = (0.25 + 0.5 * torch.arange(64) / 63).expand(3, 64, 64)
    directions, steps, means = Counter[int](), [], []
    for seed in range(60):
        found = composed._altered(ramp, 64, np.random.default_rng(seed))
        assert found.shape == (3, 64, 64) and 0 <= float(found.min()) <= float(found.max()) <= 1
        inner = found[:, 16:48, 16:48].mean(0)
        down, right = float(inner.diff(dim=0).mean()), float(inner.diff(dim=1).mean())
        directions[round(math.degrees(math.atan2(down, right)) / 90) % 4] += 1
        steps.append(math.hypot(down, right))
        means.append(float(found.mean()))
    assert set(directions) == {0, 1, 2, 3} and min(directions.values()) > 5
    assert max(steps) > 1.3 * min(steps) and max(means) > 1.3 * min(means)


@pytest.mark.parametrize("shape", [(8, 8), (8, 300), (257, 31)])
@pytest.mark.parametrize("side", [8, 33])
def test_images_of_any_shape_fill_their_place(shape: tuple[int, int], side: int) -> None:
    for seed in range(4):
        found = composed._altered(torch.rand(3, *shape), side, np.random.default_rng(seed))
        assert found.shape == (3, side, side) and bool(found.isfinite().all())


def test_shares_are_counted_pixel_by_pixel() -> None:
    classes = np.random.default_rng(0).integers(0, 3, (30, 40))
    found = shares(classes, (25, 4), 11, 5)
    expected = [0.0] * 5
    for row in range(4, 15):
        for column in range(25, 36):
            expected[classes[row, column]] += 1 / 121
    assert found.dtype == np.float32 and found.tolist() == pytest.approx(expected)
