from __future__ import annotations

import numpy as np
import pytest

from mgcap.inference.unknown import NOTHING, Limits

PROBABILITIES = np.array([[0.9, 0.1], [0.9, 0.1], [0.45, 0.55], [0.45, 0.55], [0.4, 0.6]])
DISTANCES = np.array([0.1, 0.3, 0.1, 0.3, np.nan])


@pytest.mark.parametrize(
    ("limits", "unknown"),
    [
        (NOTHING, [0, 0, 0, 0, 0]),
        (Limits(distance=0.2), [0, 1, 0, 1, 0]),
        (Limits(confidence=0.6), [0, 0, 1, 1, 0]),
        (Limits(0.2, 0.6), [0, 1, 1, 1, 0]),
        (Limits(0.3, 0.55), [0, 0, 0, 0, 0]),  # what is at a limit is within it
        (Limits(0.0, 1.0), [1, 1, 1, 1, 1]),
    ],
)
def test_far_or_not_confident_is_unknown(limits: Limits, unknown: list[int]) -> None:
    assert limits.unknown(PROBABILITIES, DISTANCES).astype(int).tolist() == unknown


def test_without_distances_nothing_is_far() -> None:
    limits = Limits(0.2, 0.6)
    assert limits.unknown(PROBABILITIES).tolist() == [False, False, True, True, False]
    assert limits.far(None, 3).tolist() == [False] * 3
    assert limits.far(DISTANCES, 5).tolist() == [False, True, False, True, False]


def test_cells_of_a_map_are_told_apart_in_their_place() -> None:
    limits = Limits(0.2, 0.6)
    found = limits.unknown(PROBABILITIES[:4].reshape(2, 2, 2), DISTANCES[:4].reshape(2, 2))
    assert found.tolist() == [[False, True], [True, True]]
