"""A crafted upload costs one request: decoders crash, hang and run out of memory by themselves."""

from __future__ import annotations

import io
import os
import signal
import struct
import time
from pathlib import Path

import numpy as np
import pytest
import rasterio
from PIL import Image

from mgcap.data.images import read_image
from mgcap.serve import decoders as decoders_module
from mgcap.serve.decoders import Decoders, LargeImageError
from mgcap.serve.refusals import Refusal

LIMIT = 25_000_000


@pytest.fixture
def decoders() -> Decoders:
    own = Decoders(1, 400)
    yield own
    own.close()


def _png(path: Path, size: tuple[int, int] = (64, 48)) -> Path:
    pixels = np.random.default_rng(0).integers(0, 256, (size[1], size[0], 3), np.uint8)
    Image.fromarray(pixels).save(path)
    return path


def test_pixels_are_those_of_the_library(decoders: Decoders, tmp_path: Path) -> None:
    path = _png(tmp_path / "a.png")
    found = decoders.image(path, "PNG", LIMIT, 20)
    assert found.dtype == np.uint8
    np.testing.assert_array_equal(np.moveaxis(read_image(path).numpy(), 0, -1), found.astype(np.float32) / 255)
    Image.fromarray(np.arange(64 * 64, dtype=np.uint16).reshape(64, 64)).save(tmp_path / "deep.png")
    deep = decoders.image(tmp_path / "deep.png", "PNG", LIMIT, 20)
    assert deep.dtype == np.float32
    np.testing.assert_array_equal(np.moveaxis(read_image(tmp_path / "deep.png").numpy(), 0, -1), deep)


def test_a_child_that_dies_is_replaced(decoders: Decoders, tmp_path: Path) -> None:
    path = _png(tmp_path / "a.png")
    decoders.image(path, "PNG", LIMIT, 20)
    (child,) = decoders._all
    assert child.process is not None
    os.kill(child.process.pid, signal.SIGSEGV)
    child.process.wait()
    assert decoders.image(path, "PNG", LIMIT, 20).shape == (48, 64, 3)


def test_a_file_that_kills_or_holds_its_decoder(decoders: Decoders, tmp_path: Path) -> None:
    path = _png(tmp_path / "a.png")
    decoders.image(path, "PNG", LIMIT, 20)
    (child,) = decoders._all
    assert child.process is not None
    os.kill(child.process.pid, signal.SIGSTOP)  # as good as a decoder without end
    began = time.perf_counter()
    with pytest.raises(Refusal, match=r"more than 0.5 s") as refused:
        decoders.image(path, "PNG", LIMIT, 0.5)
    assert refused.value.status == 400
    assert time.perf_counter() - began < 5
    assert decoders.image(path, "PNG", LIMIT, 20).shape == (48, 64, 3)


def test_memory_is_limited(decoders: Decoders, tmp_path: Path) -> None:
    path = tmp_path / "large.png"
    Image.new("RGB", (15_000, 15_000)).save(path)
    with pytest.raises(Refusal) as refused:
        decoders.image(path, "PNG", 400_000_000, 60, accounted=True)
    assert refused.value.status in (400, 413)
    assert decoders.image(_png(tmp_path / "a.png"), "PNG", LIMIT, 20).shape == (48, 64, 3)


def test_large_images_wait_and_larger_ones_are_refused(
    decoders: Decoders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decoders_module, "AT_ONCE", 1000)
    path = _png(tmp_path / "a.png")
    with pytest.raises(LargeImageError) as large:
        decoders.image(path, "PNG", LIMIT, 20)
    assert large.value.pixels == 64 * 48
    assert decoders.image(path, "PNG", LIMIT, 20, accounted=True).shape == (48, 64, 3)
    with pytest.raises(Refusal, match="64 x 48 pixels") as refused:
        decoders.image(path, "PNG", 3000, 20)
    assert refused.value.status == 413


def test_a_tiff_that_claims_depth_takes_no_memory(decoders: Decoders, tmp_path: Path) -> None:
    """ImageDepth multiplies what a decoder allocates; 189 bytes took gigabytes."""
    path = tmp_path / "depth.tif"
    tags = [
        (256, 4, 1, 64), (257, 4, 1, 64), (258, 3, 1, 16), (259, 3, 1, 1), (262, 3, 1, 1), (273, 4, 1, 8),
        (277, 3, 1, 1), (278, 4, 1, 64), (279, 4, 1, 64), (32997, 4, 1, 500_000),
    ]  # fmt: skip
    body = io.BytesIO()
    body.write(struct.pack("<2sHI", b"II", 42, 8) + struct.pack("<H", len(tags)))
    for tag, kind, count, value in tags:
        body.write(struct.pack("<HHII", tag, kind, count, value))
    path.write_bytes(body.getvalue() + struct.pack("<I", 0))
    with pytest.raises(Refusal) as refused:
        decoders.image(path, "TIFF", LIMIT, 20)
    assert refused.value.status in (400, 413)


def test_a_raster_comes_back_plain(decoders: Decoders, tmp_path: Path) -> None:
    source, target = tmp_path / "r.tif", tmp_path / "plain.tif"
    place = {"crs": "EPSG:25832", "transform": rasterio.transform.from_origin(500_000, 5_600_000, 0.5, 0.5)}
    values = np.random.default_rng(0).integers(1, 2000, (5, 70, 90), np.uint16)
    with rasterio.open(
        source, "w", driver="GTiff", count=5, height=70, width=90, dtype="uint16", nodata=7, **place
    ) as made:
        made.write(values)
        made.update_tags(SECRET="x", OTHER="y")
        made.update_tags(ns="MINE", X="z")
    with pytest.raises(Refusal, match="say it with bands, as bands=4,3,2"):
        decoders.raster(source, target, None, LIMIT, 60)
    untrusted = tmp_path / "untrusted.tif"
    untrusted.write_bytes(source.read_bytes())
    with rasterio.open(untrusted, "r+") as other:
        other.update_tags(ns="OVERVIEWS", OVERVIEW_FILE="none.tif")
    with pytest.raises(Refusal, match=r"names another file for its overviews$"):  # a page cannot say that it is trusted
        decoders.raster(untrusted, target, [4, 3, 2], LIMIT, 60)
    decoders.raster(source, target, [4, 3, 2], LIMIT, 60)
    with rasterio.open(target) as plain:
        np.testing.assert_array_equal(plain.read(), values[[3, 2, 1]])
        assert (plain.nodata, plain.crs, plain.transform) == (7, place["crs"], place["transform"])
        assert not plain.tags().get("SECRET") and "MINE" not in plain.tag_namespaces()
        assert [c.name for c in plain.colorinterp] == ["red", "green", "blue"]
    with pytest.raises(Refusal, match="90 x 70 pixels"):
        decoders.raster(source, target, [4, 3, 2], 5000, 60)


@pytest.mark.parametrize("kind", ["palette", "alpha", "mask", "grey"])
def test_a_plain_copy_keeps_what_shows_and_what_is_missing(decoders: Decoders, tmp_path: Path, kind: str) -> None:
    from rasterio.enums import ColorInterp

    from mgcap.geo.opening import open_raster
    from mgcap.geo.raster import Look, read_window

    source, target = tmp_path / "r.tif", tmp_path / "plain.tif"
    rng = np.random.default_rng(1)
    count = {"palette": 1, "grey": 1, "alpha": 4, "mask": 3}[kind]
    values = rng.integers(0, 250, (count, 64, 64), np.uint8)
    missing = rng.random((64, 64)) < 0.3
    with (
        rasterio.Env(GDAL_TIFF_INTERNAL_MASK=True),
        rasterio.open(source, "w", driver="GTiff", count=count, height=64, width=64, dtype="uint8") as made,
    ):
        if kind == "alpha":
            values[3] = np.where(missing, 0, 255)
            made.colorinterp = [ColorInterp.red, ColorInterp.green, ColorInterp.blue, ColorInterp.alpha]
        made.write(values)
        if kind == "mask":
            made.write_mask(~missing)
        if kind == "palette":
            made.write_colormap(1, {n: (n, 255 - n, n // 2, 255) for n in range(256)})
    decoders.raster(source, target, None, LIMIT, 60)
    look = Look((1,) if count == 1 else (1, 2, 3), 0, 255)
    seen = []
    for path in (source, target):
        with open_raster(path) as dataset:
            seen.append(read_window(dataset, look, 0, 0, 64, 64, (64, 64)))
    for before, after in zip(*seen, strict=True):
        np.testing.assert_array_equal(before, after)


def test_deep_images_and_copies_are_bounded_by_their_bytes(decoders: Decoders, tmp_path: Path) -> None:
    from mgcap.geo.plain import COPY_BYTES

    path = tmp_path / "deep.png"
    Image.fromarray(np.zeros((100, 100), np.uint16)).save(path)
    assert decoders.image(path, "PNG", 20_000, 20).shape == (100, 100, 3)
    with pytest.raises(Refusal, match=r"more than 8 bits; 0\.0075 million are allowed"):
        decoders.image(path, "PNG", 15_000, 20)
    raster = tmp_path / "deep.tif"
    with rasterio.open(raster, "w", driver="GTiff", count=1, height=100, width=100, dtype="float64") as dataset:
        dataset.write(np.zeros((1, 100, 100)))
    decoders.raster(raster, tmp_path / "copy.tif", None, 8 * 10_000 // COPY_BYTES, 20)
    with pytest.raises(Refusal, match="pixels of 8 bytes"):
        decoders.raster(raster, tmp_path / "copy.tif", None, 8 * 10_000 // COPY_BYTES - 1, 20)
