"""Pixels of any depth and number of bands as RGB."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from mgcap.errors import ImageError
from mgcap.typing import Array

#: Floats beyond this mark missing pixels.
MAX_VALUE = 1e30


def rgb_of(array: Array, name: str | Path) -> Array:
    """Pixels of any depth and number of bands as ``[H, W, 3]``: uint8 as it is, else float32 in [0, 1].

    Args:
        array: From :func:`decode_image`.
        name: What to call the image in an error.
    """
    if array.ndim == 2:
        array = array[..., None]
    if array.ndim != 3 or array.dtype.kind not in "uifb":
        raise ImageError(f"{name} holds an array of shape {array.shape} and type {array.dtype}, not a picture")
    array = array[..., : 3 if array.shape[-1] >= 3 else 1]
    if array.dtype == np.bool_:
        array = array.astype(np.uint8) * 255
    if array.dtype != np.uint8:
        array = _scaled(array, name)
    return np.ascontiguousarray(array if array.shape[-1] == 3 else np.repeat(array, 3, axis=-1))


def _scaled(array: Array, name: str | Path) -> Array:
    with np.errstate(over="ignore"):  # refused below
        values = array.astype(np.float32)
    if array.dtype.kind == "f":
        finite = np.isfinite(array)
        if not finite.any():
            raise ImageError(f"{name} has no finite pixel")
        np.copyto(values, np.float32(0), where=~finite)
    low, high = float(values.min()), float(values.max())
    if max(-low, high) > MAX_VALUE:
        extreme = high if high > MAX_VALUE else low
        raise ImageError(f"{name} has pixels of {extreme:.3g}, which marks missing data; set them to NaN or 0")
    if low < 0 and high <= 0:
        raise ImageError(
            f"{name} has no pixel above 0, from {low:.3g} to {high:.3g}; shift its values so that black is 0"
        )
    np.clip(values, 0, None, out=values)
    values /= np.float32(_white(high, array.dtype.kind == "f"))
    return values


def white_of(array: Array) -> float:
    """The number that stands for white: 255 for bytes, 1 for floats up to 1, else all the used bits set."""
    if array.dtype == np.uint8:
        return 255.0
    if array.dtype == np.bool_:
        return 1.0
    floating = array.dtype.kind == "f"
    finite = array[np.isfinite(array)] if floating else array
    return _white(max(0.0, float(finite.max())) if finite.size else 0.0, floating)


def _white(largest: float, floating: bool) -> float:
    if floating and largest <= 1:
        return 1.0
    return float(2 ** max(8, int(np.ceil(np.log2(largest + 1)))) - 1)
