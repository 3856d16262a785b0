from __future__ import annotations

import numpy as np
import pytest
import torch

from mgcap.explain.orientation import circular_variance, dominant_orientation, rotated_orientation, sharpness
from mgcap.views import sample_views


def _stripes(degrees: float, side: int = 64) -> np.ndarray:  # type: ignore[type-arg]
    """Stripes along a direction, counter-clockwise from the x axis, y up."""
    y, x = np.mgrid[:side, :side] - side / 2
    across = np.radians(degrees + 90)
    return np.sin(0.7 * (x * np.cos(across) - y * np.sin(across)))


@pytest.mark.parametrize("degrees", [0, 20, 45, 90, 133, 179])
def test_stripes_have_their_direction(degrees: float) -> None:
    found, coherence = dominant_orientation(_stripes(degrees))
    assert abs((found - degrees + 90) % 180 - 90) < 2 and coherence > 0.9


def test_rotating_an_image_clockwise_rotates_its_orientation() -> None:
    image = torch.from_numpy(_stripes(70)).float()
    for angle in (30.0, 90.0, 250.0):
        rotated = sample_views(image[None, None].expand(1, 3, -1, -1), 1.0, [angle], 64, "filled", "mirror")[0, 0, 0]
        expected = float(rotated_orientation(np.array([70.0]), np.array([angle]))[0])
        assert abs((dominant_orientation(rotated.numpy())[0] - expected + 90) % 180 - 90) < 3


def test_no_direction_in_noise() -> None:
    assert dominant_orientation(np.random.default_rng(0).random((64, 64, 3)))[1] < 0.2
    assert dominant_orientation(np.zeros((8, 8)))[1] == 0


def test_circular_variance() -> None:
    assert circular_variance(np.array([10.0, 190.0, 10.0])) == pytest.approx(0)  # the same orientation
    assert circular_variance(np.array([0.0, 90.0])) == pytest.approx(1)
    assert np.isnan(circular_variance(np.array([])))


def test_sharpness_of_the_mean() -> None:
    image = np.random.default_rng(0).random((32, 32, 3))
    assert sharpness(np.stack([image, image])) == pytest.approx(1)
    others = np.random.default_rng(1).random((100, 32, 32, 3))
    assert sharpness(others) == pytest.approx(0.1, rel=0.1)  # noise averages out as 1 / sqrt(n)
