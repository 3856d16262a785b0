"""One image file to one array, whatever its format, depth or number of bands; without torch, which is slow to load."""

from __future__ import annotations

import os
import re
import struct
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import tifffile
from PIL import Image, ImageFile, ImageOps, UnidentifiedImageError

from mgcap.errors import ImageError

SUFFIXES = (".jpg", ".jpeg", ".png", ".tif", ".tiff", ".webp")
#: Pillow's names of the formats that are read; its other decoders never run.
FORMATS = ("JPEG", "PNG", "TIFF", "WEBP", "MPO")
#: A larger image is a map, not a scene: tile it.
MAX_PIXELS = 100_000_000
MIN_SIDE = 8

_DEEP_PILLOW_MODES = ("I", "F", "I;16", "I;16B", "I;16L")

Array = np.ndarray[Any, Any]


def is_image(path: Path) -> bool:
    """Whether a file's name says that it is an image we read (hidden files are not)."""
    return path.suffix.lower() in SUFFIXES and not path.name.startswith(".")


def max_pixels() -> int:
    """The limit on width x height: ``$MGCAP_MAX_PIXELS`` or 100 million."""
    return int(os.environ.get("MGCAP_MAX_PIXELS") or MAX_PIXELS)


def read_rgb(path: str | Path, limit: int | None = None) -> Array:
    """Read an image as ``[H, W, 3]``: uint8 if its pixels are bytes, else float32 in [0, 1].

    Greyscale is repeated, alpha is dropped, CMYK and palettes are converted, EXIF orientation is applied. Depths
    beyond 8 bits are divided by the largest number their used bits can hold (4095 for 12-bit data in a 16-bit file),
    so relative brightness is kept; of more than four bands the first three are taken. NaN counts as 0.

    Args:
        path: The file.
        limit: Width x height that is allowed; :func:`max_pixels` by default.

    Raises:
        ImageError: With one sentence that names the file.
    """
    with _reading(Path(path)):
        return _rgb(_decode(Path(path), limit or max_pixels(), FORMATS), Path(path))


def decode_image(path: str | Path, limit: int | None = None, formats: Sequence[str] | None = None) -> Array:
    """The pixels of a file as they are, ``[H, W]`` or ``[H, W, bands]``.

    Args:
        path: The file.
        limit: Width x height that is allowed; :func:`max_pixels` by default.
        formats: Pillow's names of the formats that are allowed; :data:`FORMATS` by default.

    Raises:
        ImageError: With one sentence that names the file.
    """
    with _reading(Path(path)):
        return _decode(Path(path), limit or max_pixels(), FORMATS if formats is None else tuple(formats))


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Turn whatever goes wrong with a file into one sentence."""
    if not path.is_file():
        raise ImageError(f"there is no file {path}" if not path.is_dir() else f"{path} is a folder, not an image")
    if path.stat().st_size == 0:
        raise ImageError(f"{path} is empty")
    try:
        yield
    except ImageError:
        raise
    except (UnidentifiedImageError, tifffile.TiffFileError) as error:
        raise ImageError(f"{path} is not an image that can be read") from error
    except (OSError, ValueError, SyntaxError, struct.error, MemoryError, KeyError, IndexError, RuntimeError) as error:
        raise ImageError(f"{path} is damaged: {error}") from error


def _check_size(path: Path, width: int, height: int, limit: int) -> None:
    if width * height > limit:
        raise ImageError(
            f"{path} is {width} x {height} pixels, over the limit of {limit:,}; cut it into tiles "
            "or raise MGCAP_MAX_PIXELS"
        )
    if min(width, height) < MIN_SIDE:
        raise ImageError(f"{path} is {width} x {height} pixels; at least {MIN_SIDE} x {MIN_SIDE} are needed")


def _decode(path: Path, limit: int, formats: tuple[str, ...]) -> Array:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # our own limit on pixels stands in for Pillow's warning
        if Image.MAX_IMAGE_PIXELS is not None and limit > Image.MAX_IMAGE_PIXELS:
            Image.MAX_IMAGE_PIXELS = limit  # the user asked for more than Pillow allows by itself
        try:
            with Image.open(path, formats=[name for name in formats if name != "MPO"]) as image:
                if image.format not in formats:  # an MPO is opened as a JPEG
                    raise UnidentifiedImageError
                _check_size(path, *image.size, limit)
                deep = image.mode in _DEEP_PILLOW_MODES or (image.format == "TIFF" and _tiff_bits(image) > 8)
                if not (deep and image.format == "TIFF"):
                    return _decode_with_pillow(image)
        except Image.DecompressionBombError as error:
            count = re.search(r"\d+", str(error))
            pixels = f"{int(count[0]):,}" if count else "too many"
            raise ImageError(
                f"{path} has {pixels} pixels, over the limit of {limit:,}; cut it into tiles or raise MGCAP_MAX_PIXELS"
            ) from error
        except UnidentifiedImageError:
            if path.suffix.lower() not in (".tif", ".tiff") or "TIFF" not in formats:
                raise
        return _decode_tiff(path, limit)


def _tiff_bits(image: ImageFile.ImageFile | Image.Image) -> int:
    bits = getattr(image, "tag_v2", {}).get(258, 8)
    return int(max(bits) if isinstance(bits, tuple) else bits)


def _decode_with_pillow(image: Image.Image) -> Array:
    image = ImageOps.exif_transpose(image)
    if image.mode in _DEEP_PILLOW_MODES:
        return np.asarray(image)
    if image.mode in ("LA", "PA", "RGBA", "P", "1", "L"):
        image = image.convert("RGBA" if "transparency" in image.info or "A" in image.mode else "RGB")
    return np.asarray(image.convert("RGB"))


def _decode_tiff(path: Path, limit: int) -> Array:
    """TIFFs that Pillow would cut down to 8 bits or cannot open: deep, many bands."""
    with tifffile.TiffFile(path) as file:
        page = file.pages[0]
        _check_size(path, int(page.imagewidth), int(page.imagelength), limit)  # type: ignore[union-attr]
        array = np.asarray(page.asarray())
    if array.ndim == 3 and array.shape[0] < array.shape[2] and int(getattr(page, "planarconfig", 1)) == 2:
        array = np.moveaxis(array, 0, -1)
    return array


def _rgb(array: Array, path: Path) -> Array:
    if array.ndim == 2:
        array = array[..., None]
    if array.ndim != 3 or array.dtype.kind not in "uifb":
        raise ImageError(f"{path} holds an array of shape {array.shape} and type {array.dtype}, not a picture")
    array = np.repeat(array[..., :1], 3, axis=-1) if array.shape[-1] < 3 else array[..., :3]
    if array.dtype == np.uint8:
        return array
    values = array.astype(np.float32)
    finite = np.isfinite(values)
    if not finite.any():
        raise ImageError(f"{path} has no finite pixel")
    values = np.where(finite, values, np.float32(0)).clip(min=0)
    return values / np.float32(_white(float(values.max()), array.dtype.kind == "f"))


def white_of(array: Array) -> float:
    """The number that stands for white: 255 for bytes, 1 for floats up to 1, else all the used bits set."""
    if array.dtype == np.uint8:
        return 255.0
    floating = array.dtype.kind == "f"
    finite = array[np.isfinite(array)] if floating else array
    return _white(max(0.0, float(finite.max())) if finite.size else 0.0, floating)


def _white(largest: float, floating: bool) -> float:
    if floating and largest <= 1:
        return 1.0
    return float(2 ** max(8, int(np.ceil(np.log2(largest + 1)))) - 1)
