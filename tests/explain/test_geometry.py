from __future__ import annotations

import pytest
import torch

from mgcap.explain.geometry import crop_box, to_image_frame
from mgcap.views import central_crop, sample_views


@pytest.mark.parametrize(
    "height, width, ratio", [(10, 10, 1.0), (10, 10, 0.8), (9, 14, 0.5), (256, 200, 0.875), (1, 1, 0.3)]
)
def test_the_box_is_what_the_crop_keeps(height: int, width: int, ratio: float) -> None:
    image = torch.rand(1, height, width)
    box = crop_box(height, width, ratio)
    assert torch.equal(image[:, box.top : box.bottom, box.left : box.right], central_crop(image, ratio))


@pytest.mark.parametrize("frame", ["padded", "filled"])
@pytest.mark.parametrize("ratio", [1.0, 0.8])
@pytest.mark.parametrize("angle", [0.0, 30.0, 90.0, 200.0])
def test_a_view_comes_back_to_where_it_was_taken(frame: str, ratio: float, angle: float) -> None:
    """A smooth picture, looked at by a view and taken back, is the picture again where the view looked."""
    y, x = torch.meshgrid(torch.linspace(-1, 1, 120), torch.linspace(-1, 1, 100), indexing="ij")
    picture = torch.exp(-8 * ((x - 0.3) ** 2 + (y + 0.2) ** 2)) + 0.3 * x
    view = sample_views(picture[None, None].expand(1, 3, -1, -1), ratio, [angle], 128, frame)[0, 0, 0]
    seen = sample_views(torch.ones(1, 3, 120, 100), ratio, [angle], 128, frame)[0, 0, 0]
    back = to_image_frame(view, angle, ratio, frame, 120, 100)
    clear = to_image_frame((seen > 0.999).float(), angle, ratio, frame, 120, 100) > 0.999
    assert clear.float().mean() > 0.4
    assert (back - picture)[clear].abs().max() < 0.02
    box = crop_box(120, 100, ratio)
    outside = torch.ones(120, 100, dtype=torch.bool)
    outside[box.top : box.bottom, box.left : box.right] = False
    assert not back[outside].any()


def test_a_map_rotates_with_its_view() -> None:
    heat = torch.rand(7, 7)
    upright = to_image_frame(heat, 0.0, 1.0, "filled", 56, 56)
    torch.testing.assert_close(to_image_frame(heat, 90.0, 1.0, "filled", 56, 56), upright.rot90(1, (-2, -1)))
