from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tifffile
import torch
from PIL import Image

from mgcap.data.images import read_image
from mgcap.errors import ImageError

PIXELS = np.random.default_rng(0).integers(0, 256, (20, 30, 3), dtype=np.uint8)
EXPECTED = torch.from_numpy(PIXELS).permute(2, 0, 1).float() / 255


def test_eight_bits_in_every_format(tmp_path: Path) -> None:
    for suffix in ("png", "tif", "webp"):
        path = tmp_path / f"a.{suffix}"
        Image.fromarray(PIXELS).save(path, lossless=True)
        assert torch.equal(read_image(path), EXPECTED)
    Image.fromarray(PIXELS).save(tmp_path / "a.jpg", quality=95)
    assert read_image(str(tmp_path / "a.jpg")).shape == (3, 20, 30)


def test_other_modes(tmp_path: Path) -> None:
    grey = Image.fromarray(PIXELS[..., 0])
    grey.save(tmp_path / "grey.png")
    assert torch.equal(read_image(tmp_path / "grey.png"), EXPECTED[:1].expand(3, -1, -1))
    rgba = np.dstack([PIXELS, np.full((20, 30), 40, np.uint8)])
    Image.fromarray(rgba).save(tmp_path / "rgba.png")
    assert torch.equal(read_image(tmp_path / "rgba.png"), EXPECTED)
    flat = Image.new("RGB", (20, 20), (200, 100, 50))
    flat.convert("CMYK").save(tmp_path / "cmyk.jpg", quality=100)
    colour = read_image(tmp_path / "cmyk.jpg").mean((1, 2)) * 255
    assert torch.allclose(colour, torch.tensor([200.0, 100.0, 50.0]), atol=4)
    flat.convert("P", palette=Image.Palette.ADAPTIVE).save(tmp_path / "palette.png")
    assert torch.allclose(read_image(tmp_path / "palette.png").mean((1, 2)) * 255, colour, atol=4)
    flat.convert("1").save(tmp_path / "bits.png")
    assert set(read_image(tmp_path / "bits.png").unique().tolist()) <= {0.0, 1.0}


def test_sixteen_bits_look_like_eight(tmp_path: Path) -> None:
    deep = PIXELS.astype(np.uint16) * 257
    deep[0, 0] = 65535
    tifffile.imwrite(tmp_path / "deep.tif", deep, compression="deflate")
    assert torch.allclose(read_image(tmp_path / "deep.tif")[:, 1:], EXPECTED[:, 1:], atol=1e-6)
    tifffile.imwrite(tmp_path / "planar.tif", deep.transpose(2, 0, 1), photometric="rgb", planarconfig="separate")
    assert torch.allclose(read_image(tmp_path / "planar.tif")[:, 1:], EXPECTED[:, 1:], atol=1e-6)
    Image.fromarray(deep[..., 0]).save(tmp_path / "deep.png")
    assert torch.allclose(read_image(tmp_path / "deep.png")[:, 1:], EXPECTED[:1, 1:].expand(3, -1, -1), atol=1e-6)


def test_twelve_bits_in_sixteen_are_not_black(tmp_path: Path) -> None:
    deep = PIXELS.astype(np.uint16) * 16
    deep[0, 0] = 4095
    tifffile.imwrite(tmp_path / "twelve.tif", deep)
    assert torch.allclose(read_image(tmp_path / "twelve.tif")[:, 1:], EXPECTED[:, 1:], atol=0.005)


def test_floats_nan_and_bands(tmp_path: Path) -> None:
    values = (PIXELS / 255).astype(np.float32)
    values[3, 4] = np.nan
    tifffile.imwrite(tmp_path / "float.tif", values, photometric="rgb")
    image = read_image(tmp_path / "float.tif")
    assert image[:, 3, 4].tolist() == [0, 0, 0]
    assert torch.allclose(image[:, 5:], EXPECTED[:, 5:], atol=1e-6)
    bands = np.repeat(PIXELS[..., :1].astype(np.uint16) * 257, 13, axis=-1)
    tifffile.imwrite(tmp_path / "bands.tif", bands, photometric="minisblack", planarconfig="contig")
    assert read_image(tmp_path / "bands.tif").shape == (3, 20, 30)
    tifffile.imwrite(tmp_path / "nan.tif", np.full((20, 20), np.nan, np.float32))
    with pytest.raises(ImageError, match="no finite pixel"):
        read_image(tmp_path / "nan.tif")


def test_orientation_is_applied(tmp_path: Path) -> None:
    image = Image.fromarray(PIXELS)
    exif = Image.Exif()
    exif[0x0112] = 6
    image.save(tmp_path / "rotated.jpg", exif=exif)
    assert read_image(tmp_path / "rotated.jpg").shape == (3, 30, 20)


def _png_header(width: int, height: int) -> bytes:
    import struct
    import zlib

    chunk = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    start = b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + chunk + struct.pack(">I", zlib.crc32(chunk))
    return start + struct.pack(">I", 99) + b"IDAT" + bytes(20)


def test_bad_files_get_one_sentence(tmp_path: Path) -> None:
    good = tmp_path / "good.jpg"
    Image.fromarray(PIXELS.repeat(10, 0).repeat(10, 1)).save(good)
    data = good.read_bytes()
    cases = {
        "empty.jpg": (b"", "is empty"),
        "text.jpg": (b"this is not a picture", "not an image"),
        "cut.jpg": (data[: len(data) // 2], "damaged"),
        "cut.tif": (b"II*\x00\x08\x00\x00\x00\xff", "damaged|not an image"),
        "text.tif": (b"hello", "not an image"),
        "bomb.png": (_png_header(30000, 30000), "900,000,000 pixels, over the limit of 100,000,000"),
    }
    for name, (content, sentence) in cases.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ImageError, match=sentence) as caught:
            read_image(tmp_path / name)
        assert name in str(caught.value)
        assert "\n" not in str(caught.value)
    Image.new("RGB", (1, 1)).save(tmp_path / "dot.png")
    with pytest.raises(ImageError, match="1 x 1 pixels; at least 8 x 8"):
        read_image(tmp_path / "dot.png")
    with pytest.raises(ImageError, match="there is no file"):
        read_image(tmp_path / "nothing.png")
    with pytest.raises(ImageError, match="is a folder"):
        read_image(tmp_path)


def test_a_real_30000_square_image_is_refused_without_being_decoded(tmp_path: Path) -> None:
    tifffile.imwrite(tmp_path / "huge.tif", shape=(30000, 30000, 3), dtype=np.uint8)  # sparse on disk
    with pytest.raises(ImageError, match="over the limit"):
        read_image(tmp_path / "huge.tif")


def test_the_limit_can_be_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Image.fromarray(PIXELS).save(tmp_path / "a.png")
    monkeypatch.setenv("MGCAP_MAX_PIXELS", "100")
    with pytest.raises(ImageError, match="over the limit of 100"):
        read_image(tmp_path / "a.png")
