"""What an image may claim of itself, and what is said of one that claims more."""

from __future__ import annotations

import warnings
from pathlib import Path

from mgcap.errors import ImageError
from mgcap.typing import Array

MIN_SIDE = 8
#: Most bytes that a pixel may take while it is decoded, with all its bands, in an image at the limit of pixels.
PIXEL_BYTES = 16
#: Bytes that any image may take, however few its pixels.
SPARE_BYTES = 64 << 20


class FirstFrameWarning(UserWarning):
    """A file holds several images, of which the first is used."""


_warned_of_frames = False


def warned_of_frames() -> bool:
    """Whether the warning was given before."""
    return _warned_of_frames


def one_line(sentence: str) -> str:
    """A sentence, which may quote a file, on one line and without control characters."""
    return "".join(c if c.isprintable() else "?" for c in " ".join(sentence.splitlines()))


def check_size(path: Path, size: tuple[int, int], limit: int) -> None:
    """Refuse an image with too many or too few pixels.

    Args:
        path: For the sentence.
        size: Width and height.
        limit: Width x height that is allowed.
    """
    width, height = size
    if width * height > limit:
        raise too_large(path, f"is {width} x {height}", limit)
    if min(size) < MIN_SIDE:
        raise ImageError(f"{path} is {width} x {height} pixels; at least {MIN_SIDE} x {MIN_SIDE} are needed")


def check_bytes(path: Path, size: tuple[int, int], tile: tuple[int, int], depth: float, limit: int) -> None:
    """Refuse a TIFF that takes too much memory or time to decode.

    Args:
        path: For the sentence.
        size: Width and height.
        tile: Those of a tile, which is decoded as a whole; the image's own if there are no tiles.
        depth: Bytes per pixel, all bands together.
        limit: Width x height that is allowed.
    """
    pixels = (-(-size[0] // tile[0]) * tile[0]) * (-(-size[1] // tile[1]) * tile[1])
    if pixels * depth > max(PIXEL_BYTES * limit, SPARE_BYTES):
        raise ImageError(
            f"{path} would take {pixels * depth / 1e6:,.0f} MB to decode, too much for its {size[0]} x {size[1]} "
            "pixels; keep fewer bands, or save it with smaller tiles"
        )


def too_large(path: Path, what: str, limit: int) -> ImageError:
    """What is said of an image with too many pixels."""
    return ImageError(f"{path} {what} pixels, over the limit of {limit:,}; cut it into tiles or raise MGCAP_MAX_PIXELS")


def say_first_is_used(path: Path) -> None:
    """Warn, once in a process, of a file with several images."""
    global _warned_of_frames
    if not _warned_of_frames:
        _warned_of_frames = True
        sentence = f"{path} holds several images; only the first is used, here and in other such files"
        warnings.warn(FirstFrameWarning(one_line(sentence)), stacklevel=2)


def oriented(array: Array, orientation: object) -> Array:
    """Pixels ``[H, W, ...]`` oriented by the number of their EXIF orientation."""
    if orientation in (3, 4, 6, 7):
        array = array[::-1]
    if orientation in (2, 3, 7, 8):
        array = array[:, ::-1]
    return array.swapaxes(0, 1) if orientation in (5, 6, 7, 8) else array
