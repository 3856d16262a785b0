"""Small image files of every kind that is read, and files that are crafted to do harm."""

from __future__ import annotations

import gc
import random
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import imagecodecs
import numpy as np
import pytest
import tifffile
from PIL import Image

PIXELS = np.random.default_rng(0).integers(0, 256, (20, 30, 3), dtype=np.uint8)
DEEP = PIXELS.astype(np.uint16) * 257


def good_files(folder: Path) -> list[Path]:
    """One file of each kind."""
    image = Image.fromarray(PIXELS)
    exif = Image.Exif()
    exif[274] = 6
    pillow = {
        "a.jpg": {"exif": exif},
        "progressive.jpg": {"progressive": True},
        "a.png": {"exif": exif},
        "a.webp": {},
        "lossless.webp": {"lossless": True, "exif": exif},
        "plain.tif": {},
        "lzw.tif": {"compression": "tiff_lzw"},
        "jpeg.tif": {"compression": "jpeg"},
    }
    for name, options in pillow.items():
        image.save(folder / name, **options)
    image.convert("P").save(folder / "palette.tif", compression="tiff_adobe_deflate")
    Image.fromarray(DEEP[..., 0]).save(folder / "grey16.png")
    (folder / "rgb16.png").write_bytes(imagecodecs.png_encode(DEEP))
    floats = (PIXELS / 255).astype(np.float32)
    tiffs = {
        "16.tif": (DEEP, {}),
        "16lzw.tif": (DEEP, {"compression": "lzw", "predictor": True}),
        "16tiles.tif": (DEEP, {"compression": "deflate", "tile": (16, 16)}),
        "16big.tif": (DEEP, {"bigtiff": True, "byteorder": ">"}),
        "16planar.tif": (DEEP.transpose(2, 0, 1), {"planarconfig": "separate"}),
        "float.tif": (floats, {"compression": "deflate", "predictor": 3}),
        "jpegtiles.tif": (PIXELS, {"compression": "jpeg", "tile": (16, 16)}),
        "jpeg12.tif": (DEEP >> 4, {"compression": "jpeg"}),
        "jpeg2000.tif": (DEEP, {"compression": "jpeg2000"}),
        "lerc.tif": (DEEP, {"compression": "lerc"}),
        "bands.tif": (np.dstack([DEEP] * 4), {"photometric": "minisblack", "planarconfig": "contig"}),
    }
    for name, (array, options) in tiffs.items():
        tifffile.imwrite(folder / name, array, **{"photometric": "rgb", **options})
    return sorted(path for path in folder.iterdir() if path.is_file())


def mutated(data: bytes, rng: random.Random) -> bytes:
    """A file with some of its bytes changed, taken out or doubled, more of them near its start."""
    changed = bytearray(data)
    reach = rng.choice([64, 300, len(data)])
    for _ in range(rng.choice([1, 1, 2, 4, 16])):
        place, kind = rng.randrange(min(reach, len(changed))), rng.random()
        if kind < 0.6:
            changed[place] = rng.randrange(256)
        elif kind < 0.85:
            word = rng.choice(
                [b"\xff\xff", b"\0\0", b"\xff\xff\xff\xff", b"\0\0\0\0", b"\0\0\1\0", b"\xff\xff\xff\x7f"]
            )
            changed[place : place + len(word)] = word
        elif kind < 0.92:
            del changed[place : place + rng.randrange(1, min(9, len(changed)))]
        else:
            changed[place:place] = changed[place : place + 16]
    return bytes(changed[: rng.randrange(1, len(changed) + 1)] if rng.random() < 0.1 else changed)


def png_chunk(name: bytes, data: bytes) -> bytes:
    """One chunk of a PNG."""
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def tiff(tags: dict[int, tuple[int, int]], data: bytes = b"") -> bytes:
    """A TIFF of one page by its tags: number to type (3: short, 4: long) and value; the data follow the tags."""
    place = 8 + 2 + 12 * len(tags) + 4
    head = b"II*\0" + struct.pack("<IH", 8, len(tags))
    for tag, (kind, value) in sorted(tags.items()):
        head += struct.pack("<HHII", tag, kind, 1, place if value == -1 else value)
    return head + bytes(4) + data


def grey_tiff(width: int, height: int, bits: int = 16, more: dict[int, tuple[int, int]] | None = None) -> bytes:
    """A TIFF with a deflated strip that is all zeros and far too short, and more tags."""
    data = zlib.compress(bytes(1000))
    tags = {
        256: (4, width),
        257: (4, height),
        258: (3, bits),
        259: (3, 8),
        262: (3, 1),
        273: (4, -1),
        277: (3, 1),
        278: (4, height),
        279: (4, len(data)),
    }
    return tiff(tags | (more or {}), data)


def peak_bytes(action: Callable[[], object]) -> int:
    """How much memory something takes at its peak, beyond what was in use.

    The peak that getrusage tells is never forgotten and even inherited, so that it hides what comes later.
    """
    reset = Path("/proc/self/clear_refs")
    if not reset.exists():
        pytest.skip("the peak of memory can be measured on Linux only")
    gc.collect()  # or what is freed meanwhile hides what is taken
    reset.write_text("5")
    before = _status("VmRSS")
    action()
    return _status("VmHWM") - before


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(name))
