r"""From a view's frame back to the image's own.

A view reads the crop at :math:`q = \rho R(\varphi) p` (see :mod:`mgcap.views`), so what lies at :math:`q` in the crop
stands at :math:`p = R(\varphi)^\top q / \rho` in the view.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from mgcap.views import PADDED_SCALE, central_crop


class Box(NamedTuple):
    """A part of an image in pixels; ``bottom`` and ``right`` are not in it."""

    top: int
    left: int
    bottom: int
    right: int


def crop_box(height: int, width: int, ratio: float) -> Box:
    """Which part of an image a granularity looks at."""
    index = torch.arange(height * width).view(height, width)
    kept = central_crop(index, ratio)
    (top, left), (bottom, right) = (divmod(int(kept[k, k]), width) for k in (0, -1))
    return Box(top, left, bottom + 1, right + 1)


def to_image_frame(heat: Tensor, angle: float, ratio: float, frame: str, height: int, width: int) -> Tensor:
    """Take maps of views back onto the image.

    Args:
        heat: ``[..., h, w]`` in the frame of a view.
        angle: The view's rotation in degrees.
        ratio: Which central part of the image the view's crop is.
        frame: ``padded`` or ``filled``.
        height: Of the image.
        width: Of the image.

    Returns:
        ``[..., height, width]``, zero where the view does not look.
    """
    box = crop_box(height, width, ratio)
    rows, columns = box.bottom - box.top, box.right - box.left
    y = (torch.arange(rows, dtype=torch.float64) * 2 + 1) / rows - 1
    x = (torch.arange(columns, dtype=torch.float64) * 2 + 1) / columns - 1
    y, x = torch.meshgrid(y, x, indexing="ij")
    scale = PADDED_SCALE if frame == "padded" else 1.0
    cosine, sine = math.cos(math.radians(angle)) / scale, math.sin(math.radians(angle)) / scale
    grid = torch.stack((cosine * x - sine * y, sine * x + cosine * y), dim=-1).to(heat)
    flat = heat.reshape(1, -1, *heat.shape[-2:])
    inside = (grid.abs() <= 1).all(-1)
    sampled = F.grid_sample(flat, grid[None], padding_mode="border", align_corners=False)[0] * inside
    whole = heat.new_zeros(flat.shape[1], height, width)
    whole[:, box.top : box.bottom, box.left : box.right] = sampled
    return whole.reshape(*heat.shape[:-2], height, width)
