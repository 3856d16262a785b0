"""Pictures with words, put together pixel by pixel: what is no chart needs no chart library, which takes seconds."""

from __future__ import annotations

import importlib.util
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mgcap.persistence.files import atomic_path
from mgcap.typing import Array

if TYPE_CHECKING:
    from PIL.Image import Image

#: What words are written in, and on.
INK, PAPER = "#1a1a1a", "#ffffff"
#: How hard PNG files are packed: more takes several times as long and saves a few percent.
PACKED = 3


@lru_cache(maxsize=16)
def font(size: int) -> Any:
    """The font of the charts in a size in pixels, without importing what draws them."""
    from PIL import ImageFont

    found = importlib.util.find_spec("matplotlib")
    for folder in (found.submodule_search_locations or ()) if found else ():
        file = Path(folder) / "mpl-data" / "fonts" / "ttf" / "DejaVuSans.ttf"
        if file.is_file():
            return ImageFont.truetype(str(file), size)
    return ImageFont.load_default(size)


def fitted(text: str, width: float, size: int) -> str:
    """A line that is shortened where it would be wider."""
    own = font(size)
    if own.getlength(text) <= width:
        return text
    while text and own.getlength(f"{text}...") > width:
        text = text[:-1]
    return f"{text.rstrip()}..."


def picture(pixels: Array, side: int | None = None) -> Image:
    """RGB in [0, 1] or bytes as an image; scaled to a square of that side."""
    from PIL import Image

    values = pixels if pixels.dtype == np.uint8 else (255 * pixels.clip(0, 1)).round().astype(np.uint8)
    image = Image.fromarray(np.ascontiguousarray(values))
    return image if side is None else image.resize((side, side), Image.Resampling.BICUBIC)


def save_picture(image: Image, path: Path) -> None:
    """Write a picture in the format of the file's suffix, whole or not at all."""
    with atomic_path(path) as temporary:
        image.save(temporary, format=path.suffix.lstrip(".").upper(), compress_level=PACKED)
