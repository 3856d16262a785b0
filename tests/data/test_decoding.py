from __future__ import annotations

import builtins
import contextlib
import random
import subprocess
import sys
import time
import warnings
import zlib
from pathlib import Path
from typing import Any

import imagecodecs
import numpy as np
import pytest
import tifffile
from PIL import Image, ImageOps

from mgcap.data import limits
from mgcap.data.decoding import decode_image, max_pixels, read_rgb
from mgcap.data.limits import FirstFrameWarning
from mgcap.data.pixels import white_of
from mgcap.errors import ImageError
from tests.data.files import DEEP, PIXELS, good_files, grey_tiff, mutated, peak_bytes, png_chunk


def test_torch_is_not_loaded() -> None:
    code = "import sys, mgcap.data.decoding, mgcap.data.tiff; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_bytes_stay_bytes_and_depth_becomes_floats(tmp_path: Path) -> None:
    for path in good_files(tmp_path):
        rgb = read_rgb(path)
        rotated = path.name in ("a.jpg", "a.png", "lossless.webp")
        assert rgb.shape == ((30, 20, 3) if rotated else (20, 30, 3)), path
        deep = path.name.startswith(("16", "grey16", "rgb16", "float", "jpeg12", "jpeg2000", "lerc", "bands"))
        assert rgb.dtype == (np.float32 if deep else np.uint8), path
        assert rgb.flags.c_contiguous
        if path.name.startswith(("16", "rgb16", "float", "lerc", "bands")):
            assert np.allclose(rgb, PIXELS / 255, atol=1e-6), path


@pytest.mark.filterwarnings("ignore::UserWarning")  # Pillow's doubts
def test_whatever_comes_out_is_a_picture_or_one_sentence(tmp_path: Path) -> None:
    files = {path: path.read_bytes() for path in good_files(tmp_path)}
    rng = random.Random(5)
    read = 0
    start = time.monotonic()

    def run() -> None:
        nonlocal read
        for path, data in files.items():
            for number in range(25):
                crafted = tmp_path / f"crafted{path.suffix}"
                crafted.write_bytes(mutated(data, rng))
                try:
                    rgb = read_rgb(crafted, limit=4_000_000)
                except ImageError as error:
                    told = str(error)
                    assert told.isprintable() and str(crafted) in told, (path, number, told)
                    assert not told.endswith((":", ": ")), (path, number, told)
                    continue
                read += 1
                assert rgb.shape[2] == 3 and min(rgb.shape[:2]) >= 8, (path, number)
                assert rgb.dtype == np.uint8 or (np.isfinite(rgb).all() and rgb.min() >= 0 and rgb.max() <= 1)

    assert peak_bytes(run) < 400e6
    assert read > 50
    assert time.monotonic() - start < 60


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (TypeError("a tuple"), "is damaged: its header makes no sense"),
        (AssertionError(), "is damaged: its header makes no sense"),
        (ZeroDivisionError("x"), "is damaged: its header makes no sense"),
        (RecursionError(), "is damaged: its header makes no sense"),
        (zlib.error("Error -3"), "is damaged: its header makes no sense"),
        (MemoryError(), "needs more memory than there is"),
        (OSError("two\nlines"), "is damaged: two lines"),
        (OSError(13, "Permission denied"), "cannot be read: Permission denied"),
        (RuntimeError(""), "is damaged: its header makes no sense"),
    ],
)
def test_every_error_of_a_decoder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, sentence: str
) -> None:
    Image.fromarray(PIXELS).save(tmp_path / "a.png")

    def fail(*args: Any, **kwargs: Any) -> None:
        raise error

    monkeypatch.setattr(Image, "open", fail)
    with pytest.raises(ImageError) as caught:
        read_rgb(tmp_path / "a.png")
    assert str(caught.value) == f"{tmp_path / 'a.png'} {sentence}"


def test_a_user_can_interrupt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Image.fromarray(PIXELS).save(tmp_path / "a.png")

    def stop(*args: Any, **kwargs: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Image, "open", stop)
    with pytest.raises(KeyboardInterrupt):
        read_rgb(tmp_path / "a.png")


def test_names_that_are_no_text_or_too_long(tmp_path: Path) -> None:
    (tmp_path / "two\nlines.jpg").write_text("no")
    for path in (tmp_path / "two\nlines.jpg", tmp_path / ("x" * 300 + ".png"), "nul\0.png"):
        with pytest.raises(ImageError) as caught:
            read_rgb(path)
        assert str(caught.value).isprintable()


def test_only_known_formats_are_opened(tmp_path: Path) -> None:
    image = Image.fromarray(PIXELS)
    for kind in ("EPS", "BMP", "GIF", "PPM", "ICO"):
        path = tmp_path / f"{kind}.png"
        image.save(path, kind)
        with pytest.raises(ImageError, match="not an image"):
            read_rgb(path)
    image.save(tmp_path / "a.tif")
    with pytest.raises(ImageError, match="not an image"):
        decode_image(tmp_path / "a.tif", formats=["PNG"])
    assert decode_image(tmp_path / "a.tif", formats=["TIFF"]).shape == (20, 30, 3)


CRAFTED = {
    "depth": (grey_tiff(1000, 1000, more={32997: (4, 2000)}), "a volume"),
    "depth8": (grey_tiff(1000, 1000, 8, {32997: (4, 2000)}), "a volume"),
    "tiledepth": (grey_tiff(100, 100, more={322: (4, 64), 323: (4, 64), 32998: (4, 9999)}), "a volume"),
    "samples": (grey_tiff(1000, 1000, more={277: (3, 60000)}), "MB to decode"),
    "tile": (grey_tiff(10, 10, more={322: (4, 65535), 323: (4, 65535)}), "MB to decode"),
    "tile8": (grey_tiff(10, 10, 8, {322: (4, 65535), 323: (4, 65535)}), "MB to decode"),
    "tall": (grey_tiff(8, 400_000, more={322: (4, 4096), 323: (4, 16)}), "MB to decode"),
    "side": (grey_tiff(4_000_000_000, 4_000_000_000), "over the limit|too many"),
}


@pytest.mark.parametrize("name", CRAFTED)
def test_a_header_cannot_ask_for_more_memory_than_the_pixels_are_worth(tmp_path: Path, name: str) -> None:
    data, sentence = CRAFTED[name]
    (tmp_path / "a.tif").write_bytes(data)

    def read() -> None:
        with pytest.raises(ImageError, match=sentence):
            read_rgb(tmp_path / "a.tif", limit=5_000_000)

    assert peak_bytes(read) < 20e6


def test_strips_do_not_unpack_to_more_than_the_header_says(tmp_path: Path) -> None:
    bomb = zlib.compress(bytes(300_000_000))
    for bits in (16, 8):
        head = grey_tiff(64, 64, bits, {279: (4, len(bomb))})
        (tmp_path / f"{bits}.tif").write_bytes(head[: 8 + 2 + 12 * 9 + 4] + bomb)

        def read(path: Path = tmp_path / f"{bits}.tif") -> None:
            with contextlib.suppress(ImageError):
                assert read_rgb(path).max() == 0

        assert peak_bytes(read) < 20e6


@pytest.mark.parametrize("compression", ["jpeg", "jpeg2000", "lerc"])
def test_parts_that_are_larger_than_the_file_says(tmp_path: Path, compression: str) -> None:
    """The strips' own headers give a larger size, for which their decoders would take the memory."""
    pixels = np.zeros((512, 512), np.uint16)
    tifffile.imwrite(tmp_path / "a.tif", pixels, compression=compression, rowsperstrip=512)
    assert read_rgb(tmp_path / "a.tif").shape == (512, 512, 3)
    with tifffile.TiffFile(tmp_path / "a.tif", mode="r+b") as file:
        for tag in ("ImageWidth", "ImageLength", "RowsPerStrip"):
            file.pages[0].tags[tag].overwrite(64)
    with pytest.raises(ImageError, match="another size"):
        read_rgb(tmp_path / "a.tif")


def test_text_and_profiles_of_a_png_do_not_unpack_without_end(tmp_path: Path) -> None:
    Image.fromarray(PIXELS).save(tmp_path / "a.png")
    data = (tmp_path / "a.png").read_bytes()
    bomb = zlib.compress(bytes(300_000_000))
    for chunk in (png_chunk(b"zTXt", b"k\0\0" + bomb), png_chunk(b"iCCP", b"k\0\0" + bomb)):
        (tmp_path / "b.png").write_bytes(data[:33] + chunk + data[33:])

        def read() -> None:
            try:
                assert np.array_equal(read_rgb(tmp_path / "b.png"), PIXELS)
            except ImageError as error:
                assert "b.png" in str(error)

        assert peak_bytes(read) < 100e6


@pytest.mark.parametrize("orientation", range(1, 9))
def test_orientation_of_what_pillow_does_not_read(tmp_path: Path, orientation: int) -> None:
    image = Image.fromarray(PIXELS)
    image.getexif()[274] = orientation
    expected = np.asarray(ImageOps.exif_transpose(image)) / 255
    tag = [(274, "H", 1, orientation, True)]
    floats = (PIXELS / 255).astype(np.float32)
    planar = {"planarconfig": "separate", "extratags": tag}
    tifffile.imwrite(tmp_path / "deep.tif", DEEP, photometric="rgb", extratags=tag)
    tifffile.imwrite(tmp_path / "float.tif", floats, photometric="rgb", extratags=tag)
    tifffile.imwrite(tmp_path / "planar.tif", DEEP.transpose(2, 0, 1), photometric="rgb", **planar)
    bands = np.concatenate([PIXELS] * 4, 2)
    tifffile.imwrite(tmp_path / "bands.tif", bands, photometric="minisblack", planarconfig="contig", extratags=tag)
    exif = Image.Exif()
    exif[274] = orientation
    png = imagecodecs.png_encode(DEEP)
    described = png[:33] + png_chunk(b"eXIf", exif.tobytes().removeprefix(b"Exif\0\0")) + png[33:]
    (tmp_path / "deep.png").write_bytes(described)
    for path in tmp_path.iterdir():
        rgb = read_rgb(path)
        found = rgb / 255 if rgb.dtype == np.uint8 else rgb
        assert found.shape == expected.shape and np.allclose(found, expected, atol=1e-6), path


def test_many_bands_of_a_narrow_image(tmp_path: Path) -> None:
    bands = np.random.default_rng(1).integers(0, 4000, (12, 40, 10), dtype=np.uint16)
    tifffile.imwrite(tmp_path / "a.tif", bands, photometric="minisblack", planarconfig="separate")
    assert np.array_equal(decode_image(tmp_path / "a.tif"), bands.transpose(1, 2, 0))


def test_deep_colour_pngs_keep_their_depth(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = np.random.default_rng(0).integers(0, 65536, (20, 30, 4), dtype=np.uint16)
    deep[0, 0] = 65535
    for bands in (2, 3, 4):
        path = tmp_path / f"{bands}.png"
        path.write_bytes(imagecodecs.png_encode(np.ascontiguousarray(deep[..., :bands])))
        assert np.array_equal(decode_image(path), deep[..., :bands])
        colours = deep[..., [0, 0, 0]] if bands == 2 else deep[..., :3]
        assert np.allclose(read_rgb(path), colours / 65535, atol=1e-7)
    with pytest.raises(ImageError, match="over the limit"):
        decode_image(tmp_path / "3.png", limit=599)
    importing = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "imagecodecs":
            raise ImportError(name)
        return importing(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    assert np.array_equal(decode_image(tmp_path / "3.png"), deep[..., :3] >> 8)


def _several(folder: Path) -> list[Path]:
    image, other = Image.fromarray(PIXELS), Image.fromarray(255 - PIXELS)
    for name in ("a.png", "a.webp", "a.tif"):
        image.save(folder / name, save_all=True, append_images=[other], lossless=True)
    image.save(folder / "a.jpg", "MPO", save_all=True, append_images=[other])
    tifffile.imwrite(folder / "deep.tif", np.stack([DEEP, DEEP // 2]), photometric="rgb")
    return sorted(folder.iterdir())


def test_the_first_of_several_images_is_used_and_said_so_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = _several(tmp_path)
    for path in files:
        monkeypatch.setattr(limits, "_warned_of_frames", False)
        with pytest.warns(FirstFrameWarning, match=f"{path.name} holds several images") as caught:
            first = read_rgb(path)
            read_rgb(path)
        assert len(caught) == 1
        if path.suffix != ".jpg":
            assert np.allclose(first if first.dtype != np.uint8 else first / 255, PIXELS / 255, atol=1e-6)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for path in files:
            read_rgb(path)


def test_overviews_are_not_several_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, pixels in (("bytes.tif", PIXELS), ("deep.tif", DEEP)):
        with tifffile.TiffWriter(tmp_path / name) as writer:
            writer.write(pixels, photometric="rgb")
            writer.write(pixels[::2, ::2], photometric="rgb", subfiletype=1)
        monkeypatch.setattr(limits, "_warned_of_frames", False)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert read_rgb(tmp_path / name).shape == (20, 30, 3)


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.int16])
def test_values_that_cannot_be_brightness(tmp_path: Path, kind: type) -> None:
    values = PIXELS.astype(kind)
    tifffile.imwrite(tmp_path / "negative.tif", values - 300, photometric="rgb")
    with pytest.raises(ImageError, match=r"negative.tif has no pixel above 0.*shift"):
        read_rgb(tmp_path / "negative.tif")
    tifffile.imwrite(tmp_path / "zero.tif", values * 0, photometric="rgb")
    assert read_rgb(tmp_path / "zero.tif").max() == 0
    tifffile.imwrite(tmp_path / "some.tif", values - 100, photometric="rgb")
    assert np.allclose(read_rgb(tmp_path / "some.tif"), (values - 100).clip(0) / 255, atol=1e-6)
    if kind is np.int16:
        return
    for missing in (3.4e38, -3.4e38, 1e31) + ((1e300,) if kind is np.float64 else ()):
        values[2, 3] = missing
        tifffile.imwrite(tmp_path / "missing.tif", values, photometric="rgb")
        with pytest.raises(ImageError, match=r"missing.tif has pixels of .*; set them to NaN or 0"):
            read_rgb(tmp_path / "missing.tif")


def test_the_limit_is_a_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Image.fromarray(PIXELS).save(tmp_path / "a.png")
    monkeypatch.setenv("MGCAP_MAX_PIXELS", "many")
    with pytest.raises(ImageError, match="MGCAP_MAX_PIXELS must be a number of pixels, not 'many'"):
        read_rgb(tmp_path / "a.png")
    monkeypatch.setenv("MGCAP_MAX_PIXELS", "599")
    assert max_pixels() == 599
    with pytest.raises(ImageError, match="over the limit of 599"):
        read_rgb(tmp_path / "a.png")
    assert read_rgb(tmp_path / "a.png", limit=600).shape == (20, 30, 3)


def test_white() -> None:
    assert white_of(PIXELS) == 255
    assert white_of(np.array([[True]])) == 1
    assert white_of(np.array([[900]], np.uint16)) == 1023


@pytest.mark.skipif(sys.platform != "linux", reason="the peak of memory can be measured on Linux only")
@pytest.mark.parametrize("orientation", [1, 6])
def test_memory_of_a_large_deep_image(tmp_path: Path, orientation: int) -> None:
    deep = np.random.default_rng(0).integers(0, 4000, (2500, 2500, 3), dtype=np.uint16)  # malloc keeps less
    options: dict[str, Any] = {"photometric": "rgb", "extratags": [(274, "H", 1, orientation, True)]}
    tifffile.imwrite(tmp_path / "strips.tif", deep, compression="lzw", **options)
    tifffile.imwrite(tmp_path / "float.tif", deep.astype(np.float32), **options)
    tifffile.imwrite(tmp_path / "planar.tif", deep.transpose(2, 0, 1), planarconfig="separate", **options)
    (tmp_path / "a.png").write_bytes(imagecodecs.png_encode(deep))
    # A process of its own: in this one, what other tests left to malloc would be used again and not be seen.
    program = (
        "import sys; from pathlib import Path\n"
        "from mgcap.data.decoding import read_rgb; from tests.data.files import peak_bytes\n"
        "for path in map(Path, sys.argv[1:]):\n"
        "    read_rgb(path)  # what is loaded once does not count\n"
        "    print(peak_bytes(lambda: read_rgb(path)))"
    )
    files = sorted(tmp_path.iterdir())
    done = subprocess.run([sys.executable, "-c", program, *files], capture_output=True, text=True, check=True)
    for path, taken in zip(files, done.stdout.split(), strict=True):
        share = int(taken) / (4 * deep.size)  # the pixels as decoded and as floats, or it was not measured
        assert 1.4 < share < 3, path
