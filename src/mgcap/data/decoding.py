"""One image file to one array, whatever its format, depth or number of bands; without torch, which is slow to load.

Files may come from strangers: only the decoders of four formats run, a file says in its header how much memory it
will take and is refused if that is too much, and whatever a decoder raises is one sentence about that file.
"""

from __future__ import annotations

import logging
import os
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from mgcap.data import limits
from mgcap.data.limits import (
    check_bytes,
    check_size,
    one_line,
    oriented,
    say_first_is_used,
    too_large,
)
from mgcap.data.pixels import rgb_of
from mgcap.errors import ImageError, missing
from mgcap.typing import Array

SUFFIXES = (".jpg", ".jpeg", ".png", ".tif", ".tiff", ".webp")
#: Pillow's names of the formats that are read; its other decoders never run.
FORMATS = ("JPEG", "PNG", "TIFF", "WEBP", "MPO")
#: The same as Image.open takes them: an MPO is opened as a JPEG.
OPENED = ("JPEG", "PNG", "TIFF", "WEBP")
#: A larger image is a map, not a scene: tile it.
MAX_PIXELS = 100_000_000

_DEEP_PILLOW_MODES = ("I", "F", "I;16", "I;16B", "I;16L")


warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning)  # our own limit on pixels stands in for it
for _name in ("PIL", "tifffile"):  # what they log about a file is said by its error
    logging.getLogger(_name).addHandler(logging.NullHandler())


def is_image(path: Path) -> bool:
    """Whether a file's name says that it is an image we read (hidden files are not)."""
    return path.suffix.lower() in SUFFIXES and not path.name.startswith(".")


def max_pixels() -> int:
    """The limit on width x height: ``$MGCAP_MAX_PIXELS`` or 100 million."""
    given = os.environ.get("MGCAP_MAX_PIXELS") or str(MAX_PIXELS)
    if not given.strip().isdecimal():
        raise ImageError(f"MGCAP_MAX_PIXELS must be a number of pixels, not '{given}'")
    return int(given)


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
        return rgb_of(_decode(Path(path), limit or max_pixels(), FORMATS), path)


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
    try:
        if not path.is_file():
            raise ImageError(missing("file", path) if not path.is_dir() else f"{path} is a folder, not an image")
        if path.stat().st_size == 0:
            raise ImageError(f"{path} is empty")
        yield
    except ImageError as error:
        if str(error).isprintable():
            raise
        raise ImageError(one_line(str(error))) from error
    except Exception as error:  # decoders raise whatever they like on crafted files
        raise ImageError(one_line(_reason(path, error))) from error


def _reason(path: Path, error: Exception) -> str:
    if isinstance(error, UnidentifiedImageError) or type(error).__name__ == "TiffFileError":
        return f"{path} is not an image that can be read"
    if isinstance(error, MemoryError):
        return f"{path} needs more memory than there is"
    if isinstance(error, OSError) and error.strerror:
        return f"{path} cannot be read: {error.strerror}"
    if isinstance(error, ValueError) and "imagecodecs" in str(error):
        return f"{path} is compressed in a way that needs imagecodecs: pip install 'mgcap[formats]'"
    told = str(error).strip() if isinstance(error, OSError | ValueError | SyntaxError | RuntimeError) else ""
    return f"{path} is damaged: {told[:200] or 'its header makes no sense'}"


def _decode(path: Path, limit: int, formats: tuple[str, ...]) -> Array:
    if Image.MAX_IMAGE_PIXELS is not None and limit > Image.MAX_IMAGE_PIXELS:
        Image.MAX_IMAGE_PIXELS = limit  # the user asked for more than Pillow allows by itself
    try:
        with Image.open(path, formats=[name for name in OPENED if name in formats]) as image:
            if image.format not in formats:
                raise UnidentifiedImageError
            check_size(path, image.size, limit)
            if not (image.format == "TIFF" and _deep_tiff(image, path, limit)):
                if getattr(image, "is_animated", False) and (image.format != "TIFF" or _has_pages(path)):
                    say_first_is_used(path)
                return _decode_deep_png(image, path) if _is_deep_png(image, path) else _decode_with_pillow(image)
    except Image.DecompressionBombError as error:
        count = re.search(r"\d+", str(error))
        raise too_large(path, f"has {int(count[0]):,}" if count else "has too many", limit) from error
    except UnidentifiedImageError:
        if path.suffix.lower() not in (".tif", ".tiff") or "TIFF" not in formats:
            raise
    from mgcap.data.tiff import decode_tiff

    return decode_tiff(path, limit)


def _deep_tiff(image: Image.Image, path: Path, limit: int) -> bool:
    """Whether Pillow would cut a TIFF down to 8 bits; if not, whether it may decode it is checked."""
    tags = getattr(image, "tag_v2", {})
    bits = tags.get(258, 8)
    bits = bits if isinstance(bits, tuple) else (bits,)
    if max(bits) > 8 or image.mode in _DEEP_PILLOW_MODES:
        return True
    if tags.get(32997, 1) != 1 or tags.get(32998, 1) != 1:  # depths of image and tile
        raise ImageError(f"{path} is a volume, not a picture")
    depth = sum(bits) * (tags.get(277, 1) if len(bits) == 1 else 1) / 8
    size = int(tags[256]), int(tags[257])  # as stored, before its orientation is applied
    check_bytes(path, size, (tags.get(322, size[0]), tags.get(323, size[1])), depth, limit)
    return False


def _has_pages(path: Path) -> bool:
    import tifffile

    from mgcap.data.tiff import has_pages

    if limits.warned_of_frames():
        return False
    with tifffile.TiffFile(path) as file:
        return has_pages(file)


def _decode_with_pillow(image: Image.Image) -> Array:
    image = ImageOps.exif_transpose(image)
    if image.mode in _DEEP_PILLOW_MODES:
        return np.asarray(image)
    if image.mode in ("LA", "PA", "RGBA", "P", "1", "L"):
        image = image.convert("RGBA" if "transparency" in image.info or "A" in image.mode else "RGB")
    return np.asarray(image.convert("RGB"))


def _is_deep_png(image: Image.Image, path: Path) -> bool:
    """Whether a PNG has 16 bits in several channels, which Pillow would cut down to 8."""
    if image.format != "PNG" or image.mode not in ("RGB", "RGBA", "LA"):
        return False
    with path.open("rb") as file:
        return file.read(25)[24:] == b"\x10"  # the header comes first


def _decode_deep_png(image: Image.Image, path: Path) -> Array:
    try:
        from imagecodecs import png_decode
    except ImportError:
        return _decode_with_pillow(image)
    data = path.read_bytes()
    described = any(name in data for name in (b"eXIf", b"tEXt", b"zTXt", b"iTXt"))
    orientation = image.getexif().get(274, 1) if described else 1
    return oriented(np.asarray(png_decode(data)), orientation)
