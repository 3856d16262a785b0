"""What a model's training images were like: depth of the pixels, side and ground resolution.

A raster that is mapped later must look the same to the model, or be refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from mgcap.data.decoding import decode_image
from mgcap.data.pixels import rgb_of, white_of
from mgcap.data.stream import Item
from mgcap.errors import ImageError

#: So many training images are looked at.
SAMPLE = 16


class Imagery(BaseModel):
    """Pixels as a model knows them.

    Attributes:
        dtype: Type of the pixels in the files, as numpy calls it.
        white: The number that stood for white.
        side: Median side of an image in pixels.
        resolution: Metres per pixel, if that is known.
    """

    model_config = ConfigDict(extra="ignore", frozen=True)

    dtype: str = "uint8"
    white: Annotated[float, Field(gt=0)] = 255.0
    side: Annotated[int, Field(gt=0)] = 256
    resolution: Annotated[float, Field(gt=0)] | None = None


def imagery_of(items: Sequence[Item], resolution: float | None = None) -> Imagery:
    """Look at a few training images, evenly spread over them; those that cannot be read are skipped."""
    places = np.unique(np.linspace(0, len(items) - 1, min(SAMPLE, len(items))).astype(int))
    arrays = [array for i in places if (array := _pixels(items[int(i)])) is not None]
    if not arrays:
        return Imagery(resolution=resolution)
    kinds = [array.dtype.name for array in arrays]
    dtype = max(set(kinds), key=kinds.count)
    whites = [white_of(array) for array in arrays if array.dtype.name == dtype]
    sides = [float(np.sqrt(np.prod([n for n in array.shape if n > 4][:2]))) for array in arrays]
    return Imagery(dtype=dtype, white=max(whites), side=max(1, round(float(np.median(sides)))), resolution=resolution)


def _pixels(item: Item) -> np.ndarray[Any, Any] | None:
    if isinstance(item, Tensor):
        return np.asarray((item.float() if item.dtype == torch.bfloat16 else item).detach().cpu())
    if not isinstance(item, str | Path):
        return np.asarray(item)
    try:
        pixels = decode_image(item)
        rgb_of(pixels, item)  # or it has no white
    except ImageError:
        return None
    return pixels
