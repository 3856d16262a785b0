"""One image file to one RGB tensor, whatever its format, depth or number of bands."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from mgcap.data.decoding import MAX_PIXELS, SUFFIXES, decode_image, is_image, max_pixels, read_rgb
from mgcap.data.limits import MIN_SIDE
from mgcap.data.pixels import white_of

__all__ = [
    "MAX_PIXELS", "MIN_SIDE", "SUFFIXES", "decode_image", "is_image", "max_pixels", "read_image", "read_rgb",
    "to_floats", "white_of",
]  # fmt: skip


def read_image(path: str | Path) -> Tensor:
    """Read an image as float32 RGB in [0, 1], ``[3, H, W]``; see :func:`mgcap.data.decoding.read_rgb`.

    Raises:
        ImageError: With one sentence that names the file.
    """
    return to_floats(read_rgb(path))


def to_floats(rgb: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> Tensor:
    """What :func:`mgcap.data.decoding.read_rgb` gave as float32 ``[3, H, W]``."""
    array = rgb.astype(np.float32, copy=rgb.dtype == np.uint8)
    if rgb.dtype == np.uint8:
        array /= 255
    return torch.from_numpy(array).permute(2, 0, 1).contiguous()
