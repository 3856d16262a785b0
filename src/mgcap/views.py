r"""Granular crops x rotations of an image (Eq. 3), each sampled once.

The paper rotates, pads 224 to 317 pixels and shrinks back to 224; every step is an affine map, so the
composition is one too and a view needs a single bilinear interpolation. With normalised coordinates
:math:`p\in[-1,1]^2` in the frame of the view, the crop is read at

.. math:: q = \rho\, R(\varphi)\, p, \qquad \rho=\sqrt2 \text{ (padded)},\; \rho=1 \text{ (filled)}.

Rotation: view ``r`` is the crop rotated *clockwise* by :math:`360 r/R` degrees. Rotate the image counter-clockwise
by 90 degrees, as ``torch.rot90`` does, and the view that won before is found 90 degrees further: canonical angles
rotate with the image.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

#: 317 / 224, the paper's padding: the circle around the crop just fits the frame.
PADDED_SCALE = math.sqrt(2.0)


def central_crop(images: Tensor, ratio: float) -> Tensor:
    """Cut the central ``ratio`` of each side, exactly centred (the margin is the same on both sides)."""
    height, width = images.shape[-2:]
    top, left = (min(round(side * (1 - ratio) / 2), (side - 1) // 2) for side in (height, width))
    return images[..., top : height - top, left : width - left]


def shrunk(crop: Tensor, content: float) -> Tensor:
    """Shrink by area a crop that is more than twice as large as it will be seen, so that nothing aliases."""
    height, width = (math.ceil(side / max(1, int(side / content))) for side in crop.shape[-2:])
    return crop if (height, width) == crop.shape[-2:] else F.adaptive_avg_pool2d(crop, (height, width))


def _rotation_grid(angles: Sequence[float], scale: float, size: int, like: Tensor) -> Tensor:
    """Sampling positions ``[R, size, size, 2]`` (x, y)."""
    axis = (torch.arange(size, dtype=torch.float64) * 2 + 1) / size - 1
    y, x = torch.meshgrid(axis * scale, axis * scale, indexing="ij")
    rotations = [(math.cos(math.radians(angle)), math.sin(math.radians(angle))) for angle in angles]
    return torch.stack([torch.stack((c * x + s * y, c * y - s * x), dim=-1) for c, s in rotations]).to(like)


def sample_views(
    images: Tensor, ratio: float, angles: Sequence[float], size: int, frame: str = "padded", corners: str = "zero"
) -> Tensor:
    """Sample one granularity at some rotations.

    Angles that differ by 90 degrees share one sample: a frame rotated by 90 degrees falls onto itself.

    Args:
        images: ``[B, 3, H, W]``, normalised so that zero is the mean colour.
        ratio: The granularity: which central part of each side is kept.
        angles: Rotations in degrees.
        size: Side of a view in pixels.
        frame: ``padded`` shrinks the crop so that it stays whole at every angle (the paper's), ``filled`` keeps
            its size and loses the corners that are rotated out of the frame.
        corners: What stands outside the crop: ``zero`` or, in a filled frame, the ``mirror`` image.

    Returns:
        ``[B, len(angles), 3, size, size]``.
    """
    scale = PADDED_SCALE if frame == "padded" else 1.0
    return sample_frames(central_crop(images, ratio), angles, size, scale, corners)


def sample_frames(
    crop: Tensor,
    angles: Sequence[float],
    size: int,
    scale: float,
    corners: str = "zero",
    centre: tuple[float, float] = (0.0, 0.0),
) -> Tensor:
    """Sample crops ``[B, 3, H, W]`` at some rotations in frames ``scale`` times as large as they are.

    Args:
        crop: Images.
        angles: Rotations in degrees.
        size: Side of a frame in pixels.
        scale: Side of a frame, for one of a crop.
        corners: As for :func:`sample_views`.
        centre: Of the frames (x, y), from -1 to 1 across a crop.

    Returns:
        ``[B, len(angles), 3, size, size]``.
    """
    crop = shrunk(crop, size / scale)
    quarters = [divmod(round(angle % 360.0, 9), 90.0) for angle in angles]
    rests = sorted({rest for _, rest in quarters})
    grid = _rotation_grid(rests, scale, size, crop)
    if any(centre):
        grid = grid + torch.tensor(centre).to(grid)
    batch = crop.shape[0]
    # All rotations of one image are one tall sample of it: no copy of the image for each rotation.
    sampled = F.grid_sample(
        crop,
        grid.reshape(1, len(rests) * size, size, 2).expand(batch, -1, -1, -1),
        mode="bilinear",
        padding_mode="reflection" if corners == "mirror" else "zeros",
        align_corners=False,
    ).reshape(batch, crop.shape[1], len(rests), size, size)
    views = [sampled[:, :, rests.index(rest)].rot90(-int(quarter), (-2, -1)) for quarter, rest in quarters]
    return torch.stack(views, dim=1)


def make_views(
    images: Tensor,
    granularities: Sequence[float] = (1.0, 0.9, 0.8),
    rotations: int = 12,
    size: int = 224,
    frame: str = "padded",
    corners: str = "zero",
) -> Tensor:
    """All S granularities x R rotations of each image, each by one resampling.

    Args:
        images: ``[B, 3, H, W]``, any size; zero is what stands outside the crop.
        granularities: Crop ratios in (0, 1].
        rotations: How many rotations, 360 / R degrees apart.
        size: Side of a view in pixels.
        frame: ``padded`` or ``filled``, see :func:`sample_views`.
        corners: ``zero`` or ``mirror``.

    Returns:
        ``[B, S, R, 3, size, size]``.
    """
    if images.ndim != 4:
        raise ValueError(f"images must be [B, 3, H, W], not {list(images.shape)}")
    angles = [360.0 * r / rotations for r in range(rotations)]
    return torch.stack([sample_views(images, s, angles, size, frame, corners) for s in granularities], dim=1)
