"""Blocks of land as folds, and intervals that count them."""

import numpy as np
import pytest

from mgcap.evaluation.metrics import wilson_interval
from mgcap.evaluation.spatial import block_folds, block_numbers, blocked_share


def test_blocks_are_squares_of_the_ground():
    places = np.array([[0, 0], [9, 9], [10, 0], [0, 10], [25, 25], [29, 21]], float)
    blocks = block_numbers(places + 1000, 10)
    assert blocks[0] == blocks[1] and blocks[4] == blocks[5]
    assert len(set(blocks.tolist())) == 4
    with pytest.raises(ValueError, match="positive"):
        block_numbers(places, 0)


def test_no_block_is_in_two_folds():
    rng = np.random.default_rng(0)
    blocks = rng.integers(0, 23, 300)
    targets = rng.integers(0, 4, 300)
    folds = block_folds(blocks, targets)
    assert folds is not None and set(folds.tolist()) == set(range(5))
    for block in range(23):
        assert len(set(folds[blocks == block].tolist())) == 1


def test_one_block_cannot_be_split_and_two_are_two_folds():
    targets = np.array([0, 1, 0, 1])
    assert block_folds(np.zeros(4, int), targets) is None
    folds = block_folds(np.array([0, 0, 7, 7]), targets)
    assert folds is not None and sorted(set(folds.tolist())) == [0, 1]


def test_a_class_that_occurs_once_does_not_keep_from_splitting():
    folds = block_folds(np.arange(6), np.array([0, 0, 0, 0, 0, 1]))
    assert folds is not None and len(set(folds.tolist())) == 5


def test_independent_places_have_about_wilsons_interval():
    right = np.arange(2000) % 10 != 0
    found = blocked_share(right, np.arange(2000))
    assert found.value == pytest.approx(0.9)
    assert (found.low, found.high) == pytest.approx(wilson_interval(0.9, 2000), abs=1e-3)


def test_places_of_one_block_count_once():
    """Twenty times the same places in the same blocks say no more than each of them once."""
    right, blocks = np.array([1, 1, 0, 1, 1, 0, 1, 1]), np.arange(8)
    once, often = blocked_share(right, blocks), blocked_share(np.repeat(right, 20), np.repeat(blocks, 20))
    assert (often.low, often.high) == pytest.approx((once.low, once.high), abs=0.02)
    assert often.high - often.low > 0.4


def test_the_interval_covers_what_blocks_vary_by():
    """Of 300 samples of blocks that are each right or wrong as a whole, about 95 % of the intervals have the truth."""
    rng = np.random.default_rng(3)
    hit = 0
    for _ in range(300):
        found = blocked_share(np.repeat(rng.random(30) < 0.8, 10), np.repeat(np.arange(30), 10))
        hit += found.low <= 0.8 <= found.high
    assert hit >= 0.92 * 300


@pytest.mark.parametrize("sizes", [[100, *[1] * 19], [40, 30, 20, 10, 5], [100, 100, *[5] * 10], [50, *[5] * 20]])
@pytest.mark.parametrize("alike", [0.3, 0.999])
def test_the_interval_covers_what_uneven_blocks_vary_by(sizes, alike):
    """Of 300 samples of blocks of many sizes, whose places are partly or wholly alike, nine of ten have the truth."""
    rng = np.random.default_rng(4)
    blocks, rest = np.repeat(np.arange(len(sizes)), sizes), 1 / alike - 1
    hit = 0
    for _ in range(300):
        right = rng.random(len(blocks)) < rng.beta(0.8 * rest, 0.2 * rest, len(sizes))[blocks]
        found = blocked_share(right, blocks)
        hit += found.low <= 0.8 <= found.high
    assert hit >= 0.92 * 300


def test_a_few_single_places_beside_large_blocks_count_for_little():
    """Four even blocks, and the same with one place in each of ten more: about as sure."""
    right, blocks = np.repeat([1, 1, 1, 0], 50), np.repeat(np.arange(4), 50)
    even = blocked_share(right, blocks)
    more = blocked_share(np.append(right, np.ones(10)), np.append(blocks, np.arange(4, 14)))
    assert more.high - more.low > 0.85 * (even.high - even.low)


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_all_right_is_not_certain(value):
    found = blocked_share(np.full(12, value), np.repeat(np.arange(4), 3))
    assert found.value == value and found.high - found.low > 0.3
    alone = blocked_share(np.full(12, value), np.zeros(12, int))
    assert (alone.low, alone.high) == (0.0, 1.0)


def test_a_place_that_stands_for_two_counts_as_two() -> None:
    rng = np.random.default_rng(0)
    blocks = np.arange(120) // 10
    right = (rng.random(120) < np.linspace(0.5, 0.95, 12)[blocks]).astype(int)
    weights = 1 + np.arange(120) % 2
    found = blocked_share(right, blocks, weights)
    repeated = blocked_share(np.repeat(right, weights), np.repeat(blocks, weights))
    assert found.value == pytest.approx(repeated.value)
    assert found.error == pytest.approx(repeated.error)  # blocks differ as much
    assert blocked_share(right, blocks, np.full(120, 7.0)) == blocked_share(right, blocks)


def test_one_heavy_place_makes_the_interval_wide() -> None:
    right, blocks = np.arange(40) % 4 > 0, np.arange(40)
    weights = np.ones(40)
    weights[1] = 200
    heavy, even = blocked_share(right, blocks, weights), blocked_share(right, blocks)
    assert heavy.high - heavy.low > 2 * (even.high - even.low)
