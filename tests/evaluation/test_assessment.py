"""The numbers of published examples."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import binomtest

from mgcap.evaluation.assessment import allocate, confusion_matrix, count_accuracy, estimate_stratified


def _units(confusion: Any) -> tuple[Any, Any]:
    """Class on the map and class in the reference of units with this confusion matrix."""
    confusion = np.array(confusion)
    mapped, truth = np.indices(confusion.shape)
    return np.repeat(mapped.ravel(), confusion.ravel()), np.repeat(truth.ravel(), confusion.ravel())


#: Olofsson et al. (2014), table 8: deforestation, forest gain, stable forest, stable non-forest; pixels of 30 m.
FOREST = [[66, 0, 5, 4], [0, 55, 8, 12], [1, 0, 153, 11], [2, 1, 9, 313]]
PIXELS = np.array([200_000, 150_000, 3_200_000, 6_450_000])


def test_the_example_of_olofsson_2014() -> None:
    mapped, truth = _units(FOREST)
    found = estimate_stratified(mapped, truth, mapped, 0.09 * PIXELS, 4)  # hectares
    areas = [a for a in found.areas if a is not None]
    assert [round(a.value) for a in areas] == [21_158, 11_686, 285_770, 581_386]
    assert [round(1.96 * (a.error or 0)) for a in areas] == [6_158, 3_756, 15_510, 16_282]
    assert round(areas[0].value / 0.09) == 235_086  # pixels
    assert round(1.96 * (areas[0].error or 0) / 0.09) == 68_418
    assert (round(found.overall.value, 2), round(found.overall.high - found.overall.value, 2)) == (0.95, 0.02)
    users = [(round(u.value, 2), round(1.96 * (u.error or 0), 2)) for u in found.users if u is not None]
    assert users == [(0.88, 0.07), (0.73, 0.10), (0.93, 0.04), (0.96, 0.02)]
    producers = [(round(p.value, 2), round(1.96 * (p.error or 0), 2)) for p in found.producers if p is not None]
    # the paper prints 0.23 and 0.01 for the 2nd and 4th interval, which its own equation 7 and others' code do not give
    assert producers == [(0.75, 0.21), (0.85, 0.25), (0.93, 0.03), (0.96, 0.02)]
    table_9 = [[0.0176, 0, 0.0013, 0.0011], [0, 0.0110, 0.0016, 0.0024]]
    assert np.allclose(found.proportions[:2], table_9, atol=5e-5)
    assert found.proportions.sum() == pytest.approx(1)


def test_the_example_of_olofsson_2013() -> None:
    mapped, truth = _units([[97, 0, 3], [3, 279, 18], [2, 1, 97]])
    found = estimate_stratified(mapped, truth, mapped, np.array([22_353, 1_122_543, 610_228]), 3)
    first = found.areas[0]
    assert first is not None and first.error is not None
    assert first.value == pytest.approx(45_112, abs=1)
    assert first.error == pytest.approx(10_752, abs=1)
    assert found.overall.value == pytest.approx(0.944, abs=5e-4)
    assert [round(u.value, 2) for u in found.users if u] == [0.97, 0.93, 0.97]
    assert [round(p.value, 2) for p in found.producers if p] == [0.48, 0.99, 0.90]
    assert [round(1.96 * (p.error or 0), 2) for p in found.producers if p] == [0.22, 0.01, 0.04]


def test_strata_of_another_map() -> None:
    """The example of Stehman (2014), whose tables go by stratum, class on the map and class in the reference."""
    strata = np.repeat([0, 1, 2, 3], 10)
    mapped = np.array([*"AAAAAAABBBABBBBBBBBBBBCCCCCCBBDDDDDDDDDD"])
    truth = np.array([*"AAAAACBABCABBBBBAABBCCCCCDDBBADDDDDDDCCB"])
    numbers = [np.searchsorted(np.array([*"ABCD"]), own) for own in (mapped, truth)]
    found = estimate_stratified(*numbers, strata, np.array([40_000, 30_000, 20_000, 10_000]), 4)
    assert found.overall.value == pytest.approx(0.63)
    assert found.overall.error == pytest.approx(0.085, abs=5e-4)
    shares = [(a.value / 100_000, (a.error or 0) / 100_000) for a in found.areas if a]
    assert shares[0] == (pytest.approx(0.35), pytest.approx(0.082, abs=5e-4))
    assert shares[2] == (pytest.approx(0.20), pytest.approx(0.064, abs=5e-4))
    user, producer = found.users[1], found.producers[1]
    assert user is not None and producer is not None
    assert (user.value, user.error) == (pytest.approx(0.574, abs=5e-4), pytest.approx(0.125, abs=1e-3))
    # the paper prints 0.114, with a variance of 0 in stratum D where its table 3 has 0.1
    assert (producer.value, producer.error) == (pytest.approx(0.794, abs=5e-4), pytest.approx(0.116, abs=1e-3))
    assert found.proportions[1, 2] == pytest.approx(0.08)


def test_intervals_hold_as_often_as_they_say(rng: np.random.Generator) -> None:
    chances = np.array([[0.9, 0.1], [0.05, 0.95]])  # of the truth where the map says so
    sizes = np.array([300.0, 700.0])
    right, hits = sizes @ chances, 0
    for _ in range(400):
        mapped = np.repeat([0, 1], [60, 80])
        truth = (rng.random(140) < chances[mapped, 1]).astype(int)
        area = estimate_stratified(mapped, truth, mapped, sizes, 2).areas[0]
        hits += area is not None and area.low <= right[0] <= area.high
    assert 0.91 <= hits / 400 <= 0.98


def test_counts_have_wilsons_intervals() -> None:
    mapped, truth = _units(FOREST)
    confusion = confusion_matrix(mapped, truth, 4)
    assert confusion.tolist() == FOREST
    found = count_accuracy(confusion)
    for estimate, right, count in (
        (found.overall, 587, 640),
        (found.users[1], 55, 75),
        (found.producers[0], 66, 69),
    ):
        expected = binomtest(right, count).proportion_ci(method="wilson")
        assert estimate is not None
        assert estimate.value == right / count
        assert (estimate.low, estimate.high) == (pytest.approx(expected.low), pytest.approx(expected.high))


def test_unknown_is_never_right_and_claims_nothing() -> None:
    mapped, truth = _units([[8, 2, 0, 0], [1, 9, 0, 0], [5, 5, 0, 0], [0, 0, 0, 0]])  # the third is unknown
    counted = count_accuracy(confusion_matrix(mapped, truth, 4), unknown=2)
    assert counted.overall.value == 17 / 30
    assert counted.known is not None and counted.known.value == 17 / 20
    assert counted.users[2] is None and counted.users[3] is None and counted.producers[2] is None
    found = estimate_stratified(mapped, truth, mapped, np.array([50.0, 30.0, 20.0, 0.0]), 4, unknown=2)
    assert found.overall.value == pytest.approx(0.5 * 0.8 + 0.3 * 0.9)
    assert found.known is not None and found.known.value == pytest.approx(0.67 / 0.8)
    assert found.areas[2] is None and found.users[2] is None
    assert found.areas[0] is not None and found.areas[0].value == pytest.approx(50 * 0.8 + 30 * 0.1 + 20 * 0.5)


def test_strata_without_units_are_left_out() -> None:
    mapped, truth = _units([[8, 2], [1, 9]])
    found = estimate_stratified(mapped, truth, mapped, np.array([50.0, 30.0, 900.0]), 2)
    assert found.total == 80
    assert found.overall.value == pytest.approx((50 * 0.8 + 30 * 0.9) / 80)


def test_points_are_allocated_as_advised() -> None:
    """Olofsson et al. (2014), 5.1: 75 for the rare classes, the rest of 641 by area; they round to 165 and 325."""
    many = np.full(4, 10_000)
    assert allocate(PIXELS, many, 75, 641).tolist() == [75, 75, 163, 328]
    assert allocate(PIXELS, many, 50).tolist() == [50] * 4
    assert allocate(PIXELS, np.array([9, 0, 100, 10_000]), 75, 641).tolist() == [9, 0, 100, 532]
    assert allocate(PIXELS, np.array([9, 0, 100, 30]), 75, 641).tolist() == [9, 0, 100, 30]
    assert allocate(np.ones(7), np.full(7, 99), 2, 100).sum() == 100
