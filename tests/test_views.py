from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.ndimage
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mgcap.views import central_crop, make_views


def _image(side: int = 64, seed: int = 0) -> torch.Tensor:
    noise = np.random.default_rng(seed).standard_normal((3, side, side))
    return torch.from_numpy(scipy.ndimage.gaussian_filter(noise, (0, 3, 3))).float()[None] * 10


def test_shape_and_order() -> None:
    views = make_views(_image(80).expand(2, -1, -1, -1), (1.0, 0.5), 6, 32)
    assert views.shape == (2, 2, 6, 3, 32, 32)


@pytest.mark.parametrize("frame", ["padded", "filled"])
@pytest.mark.parametrize("rotations", [5, 12])
def test_against_scipy(frame: str, rotations: int) -> None:
    """Each view is one affine map of the crop, here by scipy's affine_transform."""
    image, size, ratio = _image(64), 48, 0.75
    views = make_views(image, (ratio,), rotations, size, frame=frame)[0, 0].numpy()
    crop = image[0, :, 8:56, 8:56].numpy()
    scale = (math.sqrt(2) if frame == "padded" else 1.0) * crop.shape[-1] / size
    for r in range(rotations):
        angle = math.radians(360 * r / rotations)
        # output (row, col) -> input: the output is the crop rotated clockwise by the angle
        matrix = scale * np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
        centre_out, centre_in = (size - 1) / 2, (crop.shape[-1] - 1) / 2
        offset = centre_in - matrix @ np.array([centre_out, centre_out])
        for channel in range(3):
            expected = scipy.ndimage.affine_transform(
                crop[channel], matrix, offset, (size, size), order=1, mode="grid-constant"
            )
            np.testing.assert_allclose(views[r, channel], expected, atol=1e-3)


def test_paper_frame_holds_the_whole_crop_in_a_158_pixel_square() -> None:
    view = make_views(torch.ones(1, 3, 256, 256), (1.0,), 1, 224)[0, 0, 0, 0]
    inside = torch.nonzero(view > 0.5)
    assert inside.min().item() == 33 and inside.max().item() == 190  # 158 = 224 / sqrt(2)
    # at 45 degrees it still is whole: its area does not change
    rotated = make_views(torch.ones(1, 3, 256, 256), (1.0,), 8, 224)[0, 0, 1, 0]
    assert rotated.sum().item() == pytest.approx(view.sum().item(), rel=1e-2)


def test_filled_frame_corners() -> None:
    image = torch.ones(1, 3, 64, 64)
    zero = make_views(image, (1.0,), 8, 64, "filled", "zero")[0, 0, 1, 0]
    mirror = make_views(image, (1.0,), 8, 64, "filled", "mirror")[0, 0, 1, 0]
    assert zero[0, 0] == 0 and mirror.min().item() == pytest.approx(1)


@pytest.mark.parametrize("frame", ["padded", "filled"])
@pytest.mark.parametrize("rotations", [4, 8, 12])
def test_rotating_the_image_shifts_the_views(frame: str, rotations: int) -> None:
    image = _image(64)
    a = make_views(image, (1.0, 0.9), rotations, 40, frame)
    b = make_views(image.rot90(1, (-2, -1)), (1.0, 0.9), rotations, 40, frame)
    assert torch.allclose(b, a.roll(rotations // 4, dims=2), atol=1e-4)


def test_first_view_is_upright_and_the_next_is_rotated_clockwise() -> None:
    image = _image(40)
    views = make_views(image, (1.0,), 4, 40, "filled")[0, 0]
    assert torch.allclose(views[0], image[0], atol=1e-5)
    assert torch.allclose(views[1], image[0].rot90(-1, (-2, -1)), atol=1e-5)


def test_large_images_do_not_alias() -> None:
    fine = torch.zeros(1, 3, 1024, 1024)
    fine[..., ::2] = 1.0  # stripes of one pixel: grey from afar
    view = make_views(fine, (1.0,), 1, 64, "filled")
    assert torch.allclose(view, torch.full_like(view, 0.5), atol=0.02)


def test_not_square_and_tiny() -> None:
    assert make_views(torch.rand(1, 3, 90, 50), (1.0, 0.8), 3, 32).shape == (1, 2, 3, 3, 32, 32)
    assert torch.isfinite(make_views(torch.rand(1, 3, 1, 1), (0.5,), 3, 32)).all()
    with pytest.raises(ValueError, match=r"\[B, 3, H, W\]"):
        make_views(torch.rand(3, 8, 8))


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 300), st.integers(1, 300), st.floats(0.05, 1.0))
def test_crop_is_exactly_central(height: int, width: int, ratio: float) -> None:
    image = torch.zeros(height, width)
    image[0] = image[-1] = 1
    crop = central_crop(torch.arange(height * width).reshape(height, width), ratio)
    flipped = central_crop(torch.arange(height * width).reshape(height, width).flip(0, 1), ratio)
    assert torch.equal(crop, flipped.flip(0, 1))
    assert abs(crop.shape[0] - ratio * height) <= 2 and min(crop.shape) >= 1


def test_gradient_flows() -> None:
    image = torch.rand(1, 3, 12, 12, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: make_views(x, (1.0, 0.8), 3, 8), (image,))
