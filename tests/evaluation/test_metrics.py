from __future__ import annotations

import math

import pytest
import torch
from scipy.stats import binomtest

from mgcap.evaluation.metrics import expected_calibration_error, score, wilson_interval


def test_known_numbers() -> None:
    logits = torch.tensor([[9.0, 0, 0], [9, 0, 0], [0, 9, 0], [0, 0, 9], [0, 0, 9], [9, 0, 0]])
    scores = score(logits, torch.tensor([0, 0, 1, 2, 2, 1]), 3)
    assert scores.accuracy == pytest.approx(100 * 5 / 6)
    assert scores.per_class == pytest.approx((100, 50, 100))
    assert scores.confusion == ((2, 0, 0), (1, 1, 0), (0, 0, 2))
    assert scores.macro_f1 == pytest.approx(100 * (4 / 5 + 2 / 3 + 1) / 3)
    expected = (3 * 2 + 1 * 2 + 2 * 2) / 36  # agreement by chance
    assert scores.kappa == pytest.approx((5 / 6 - expected) / (1 - expected))


def test_a_class_without_test_images_has_no_accuracy() -> None:
    scores = score(torch.eye(3)[:2] * 5, torch.tensor([0, 1]), 3)
    assert scores.accuracy == 100 and math.isnan(scores.per_class[2])


def test_calibration_error_by_hand() -> None:
    probabilities = torch.tensor([[0.9, 0.1], [0.9, 0.1], [0.6, 0.4], [0.6, 0.4]])
    # two sure ones, one of them wrong: |0.9 - 0.5|; two unsure ones, both right: |0.6 - 1|
    assert expected_calibration_error(probabilities, torch.tensor([0, 1, 0, 0])) == pytest.approx(40)


def test_the_interval_of_a_share() -> None:
    """Against scipy's exact test object."""
    for right, count in ((415, 420), (0, 10), (10, 10), (3, 7)):
        expected = binomtest(right, count).proportion_ci(0.95, "wilson")
        assert wilson_interval(right / count, count) == pytest.approx((expected.low, expected.high), abs=1e-6)
