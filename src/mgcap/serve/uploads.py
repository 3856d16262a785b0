"""An upload to a file that is safe to open: of a known kind by its first bytes, not too large, under a name of ours."""

from __future__ import annotations

import asyncio
import warnings
from pathlib import Path

import tifffile
from PIL import Image, UnidentifiedImageError
from starlette.datastructures import UploadFile

from mgcap.serve.refusals import Refusal

#: First bytes of the kinds of files that are taken, with the suffix we give them and Pillow's name.
_KINDS = (
    (b"\xff\xd8\xff", ".jpg", "JPEG"),
    (b"\x89PNG\r\n\x1a\n", ".png", "PNG"),
    (b"II*\x00", ".tif", "TIFF"),
    (b"MM\x00*", ".tif", "TIFF"),
    (b"II+\x00", ".tif", "TIFF"),
    (b"MM\x00+", ".tif", "TIFF"),
)
_BLOCK = 1 << 20


def _kind(first: bytes) -> tuple[str, str]:
    if first[:4] == b"RIFF" and first[8:12] == b"WEBP":
        return ".webp", "WEBP"
    for mark, suffix, name in _KINDS:
        if first.startswith(mark):
            return suffix, name
    raise Refusal(415, "only JPEG, PNG, WebP and TIFF images are taken")


async def save_upload(upload: UploadFile, folder: Path, max_megapixels: float, only_tiff: bool = False) -> Path:
    """Write an upload into a folder and check it, without decoding its pixels.

    Args:
        upload: What the client sent; its name is not used.
        folder: Of this request alone.
        max_megapixels: More are refused.
        only_tiff: Refuse other kinds.
    """
    first = await upload.read(_BLOCK)
    if not first:
        raise Refusal(400, "the file is empty")
    suffix, name = _kind(first)
    if only_tiff and name != "TIFF":
        raise Refusal(415, "only (Geo)TIFF rasters can be mapped")
    path = folder / f"upload{suffix}"
    with path.open("wb") as file:
        while first:
            file.write(first)
            first = await upload.read(_BLOCK)
    width, height = await asyncio.to_thread(_size, path, name)
    if width * height > 1e6 * max_megapixels:
        raise Refusal(413, f"the image is {width} x {height} pixels; {max_megapixels:g} million are allowed")
    return path


def _size(path: Path, name: str) -> tuple[int, int]:
    """Width and height by the header."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                with Image.open(path, formats=[name]) as image:
                    width, height = image.size
                    return int(width), int(height)
            except (UnidentifiedImageError, Image.DecompressionBombError):
                if name != "TIFF":
                    raise
            with tifffile.TiffFile(path) as file:
                page = file.pages[0]
                return int(page.imagewidth), int(page.imagelength)  # type: ignore[union-attr]
    except Image.DecompressionBombError as error:
        raise Refusal(413, "the image has too many pixels") from error
    except Exception as error:  # decoders raise whatever they like on crafted files
        raise Refusal(400, "the file cannot be read as an image") from error
