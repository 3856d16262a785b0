"""TIFFs that Pillow would cut down to 8 bits or cannot open: deep pixels, many bands."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tifffile

from mgcap.data.limits import check_bytes, check_size, oriented, say_first_is_used
from mgcap.errors import ImageError
from mgcap.typing import Array

#: Compressions whose result is as large as the header of the TIFF says: none, LZW, deflate, PackBits, LZMA, Zstandard.
_PLAIN = (1, 5, 8, 32773, 32946, 34925, 50000)
#: Those whose strips and tiles have headers of their own.
_JPEG, _JPEG2000, _LERC = (7,), (33003, 33004, 33005, 34712), (34887,)
#: Tiles beyond this size are decoded one after the other.
_LARGE_TILE = 64 << 20


def decode_tiff(path: Path, limit: int) -> Array:
    """The first page of a TIFF, ``[H, W]`` or ``[H, W, bands]``, oriented by its tag.

    Args:
        path: The file.
        limit: Width x height that is allowed.
    """
    with tifffile.TiffFile(path) as file:
        page: Any = file.pages[0]
        size = int(page.imagewidth), int(page.imagelength)
        check_size(path, size, limit)
        if page.imagedepth != 1 or page.tiledepth != 1:
            raise ImageError(f"{path} is a volume, not a picture")
        tile = (int(page.tilewidth), int(page.tilelength)) if page.is_tiled else size
        bits = page.bitspersample if isinstance(page.bitspersample, int) else min(page.bitspersample)
        item = page.dtype.itemsize if page.dtype else 8
        item *= math.ceil(8 * item / bits)  # odd numbers of bits are unpacked from more bytes than they fill
        check_bytes(path, size, tile, page.samplesperpixel * item, limit)
        _check_parts(path, page, tile)
        large = tile[0] * tile[1] * page.samplesperpixel * item > _LARGE_TILE
        array = np.asarray(page.asarray(maxworkers=1 if large else None))
        if has_pages(file):
            say_first_is_used(path)
    if page.axes == "SYX":
        array = np.moveaxis(array, 0, -1)
    return oriented(array, page.tags.valueof(274, 1))


def has_pages(file: tifffile.TiffFile) -> bool:
    """Whether a TIFF has pages besides the first that are more than its overviews and masks."""
    try:
        second: Any = file.pages[1]
    except Exception:  # there is none, or it is damaged, which does not matter
        return False
    return not int(second.subfiletype) & 5


def _check_parts(path: Path, page: Any, tile: tuple[int, int]) -> None:
    """Refuse strips and tiles whose own headers give a larger size than the TIFF does."""
    compression = int(page.compression)
    if compression in _PLAIN:
        return
    if compression not in (*_JPEG, *_JPEG2000, *_LERC):
        name = getattr(page.compression, "name", compression)
        raise ImageError(f"{path} is compressed by {name}, which is not read here; save it with deflate or LZW")
    sizes = _jpeg_sizes if compression in _JPEG else _jpeg2000_sizes if compression in _JPEG2000 else _lerc_sizes
    handle = page.parent.filehandle
    for offset, count in zip(page.dataoffsets, page.databytecounts, strict=False):
        if not count:
            continue
        handle.seek(offset)
        found = list(sizes(handle.read(min(count, handle.size))))
        if not found or any(width > tile[0] or height > tile[1] for width, height in found):
            raise ImageError(f"{path} is damaged: a part of it has another size than the file says")


def _jpeg_sizes(data: bytes) -> Iterator[tuple[int, int]]:
    """Width and height in the frame header of a JPEG, if it is well-formed up to there."""
    place = 2
    while data[place : place + 1] == b"\xff" and len(data) >= place + 9:
        marker = data[place + 1]
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            yield int.from_bytes(data[place + 7 : place + 9]), int.from_bytes(data[place + 5 : place + 7])
            return
        place += 2 + int.from_bytes(data[place + 2 : place + 4])


def _jpeg2000_sizes(data: bytes) -> Iterator[tuple[int, int]]:
    """Width and height in everything that looks like the start of a JPEG 2000 code stream."""
    for found in re.finditer(rb"\xff\x4f\xff\x51.{4}(.{4})(.{4})(.{4})(.{4})", data, re.DOTALL):
        right, bottom, left, top = (int.from_bytes(number) for number in found.groups())
        yield right - left, bottom - top


def _lerc_sizes(data: bytes) -> Iterator[tuple[int, int]]:
    """Width and height in everything that looks like the start of LERC data."""
    for found in re.finditer(rb"Lerc2 (.{4})(.{12})", data, re.DOTALL):
        start = 4 if int.from_bytes(found[1], "little") >= 3 else 0  # a checksum comes first
        height, width = (int.from_bytes(found[2][k : k + 4], "little") for k in (start, start + 4))
        yield width, height
