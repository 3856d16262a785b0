from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import rasterio
from rasterio.enums import ColorInterp

from mgcap.data.imagery import Imagery
from mgcap.errors import RasterError
from mgcap.geo.opening import open_raster
from mgcap.geo.raster import choose_bands, choose_look, guessed_bands, read_window

EIGHT = Imagery()
C = ColorInterp


def test_bands_by_their_meaning(write_raster: Any) -> None:
    values = np.zeros((5, 16, 16), np.uint8)
    swapped = write_raster(values, colorinterp=[C.blue, C.green, C.red, C.undefined, C.undefined])
    with open_raster(swapped) as dataset:
        assert choose_bands(dataset) == (3, 2, 1)
        assert choose_bands(dataset, (5, 4, 3)) == (5, 4, 3)
        with pytest.raises(RasterError, match="from 1 to 5"):
            choose_bands(dataset, (6, 1, 2))


@pytest.mark.parametrize(
    ("count", "kinds", "expected"),
    [
        (1, None, (1,)),
        (2, [C.gray, C.alpha], (1,)),
        (3, None, (1, 2, 3)),
        (4, [C.undefined] * 4, (1, 2, 3)),
    ],
)
def test_bands_by_their_number(write_raster: Any, count: int, kinds: Any, expected: Any) -> None:
    with open_raster(write_raster(np.zeros((count, 16, 16), np.uint8), colorinterp=kinds)) as dataset:
        assert choose_bands(dataset) == expected


@pytest.mark.parametrize(
    ("count", "kinds", "guessed"),
    [
        (1, None, False),
        (3, None, True),
        (4, [C.undefined] * 4, True),
        (4, [C.blue, C.green, C.red, C.undefined], False),
    ],
)
def test_a_guess_is_said(write_raster: Any, count: int, kinds: Any, guessed: bool) -> None:
    with open_raster(write_raster(np.zeros((count, 16, 16), np.uint16), colorinterp=kinds)) as dataset:
        told = guessed_bands(dataset)
        assert told == (
            f"does not say which of its {count} bands are red, green and blue; bands 1, 2, 3 are taken in this order"
            if guessed
            else None
        )
        assert guessed_bands(dataset, (1,)) is None


def test_many_bands_must_be_named(write_raster: Any) -> None:
    many = write_raster(np.zeros((12, 16, 16), np.uint16))
    with open_raster(many) as dataset, pytest.raises(RasterError, match=r"12 bands.*`bands=4,3,2`"):
        choose_bands(dataset)


def test_other_depth_is_refused_unless_the_scale_is_given(write_raster: Any) -> None:
    deep = write_raster(np.full((3, 16, 16), 1500, np.uint16))
    with open_raster(deep) as dataset:
        with pytest.raises(RasterError, match="uint16 pixels, but the model was trained on uint8"):
            choose_look(dataset, EIGHT, None, "auto")
        look = choose_look(dataset, EIGHT, None, "0,3000")
        pixels, valid = read_window(dataset, look, 0, 0, 16, 16, (16, 16))
        assert valid.all() and np.allclose(pixels, 0.5)
        assert choose_look(dataset, Imagery(dtype="uint16", white=2047), None, "auto").white == 2047
        for white in (1023, 65535):
            with pytest.raises(RasterError, match="values up to 1500"):
                choose_look(dataset, Imagery(dtype="uint16", white=white), None, "auto")
        with pytest.raises(RasterError, match="same value everywhere"):
            choose_look(dataset, EIGHT, None, "percentiles")
        for wrong in ("3,2", "a,b", "1", "nan,3"):
            with pytest.raises(RasterError, match="`scale`"):
                choose_look(dataset, EIGHT, None, wrong)


def test_percentiles_are_those_of_valid_pixels(write_raster: Any) -> None:
    values = np.tile(np.linspace(100, 200, 64, dtype=np.float32), (3, 64, 1))
    values[:, :20] = -9999
    with open_raster(write_raster(values, nodata=-9999)) as dataset:
        look = choose_look(dataset, EIGHT, None, "percentiles")
    assert look.black == pytest.approx(np.percentile(values[values > 0], 2), abs=0.5)
    assert look.white == pytest.approx(np.percentile(values[values > 0], 98), abs=0.5)


@pytest.mark.parametrize("way", ["nodata", "alpha", "mask", "nan"])
def test_holes_are_marked_and_filled_with_the_mean(write_raster: Any, way: str) -> None:
    values = np.full((3, 16, 16), 100, np.float32)
    values[:, 8:] = 200
    hole = np.zeros((16, 16), bool)
    hole[:4] = True
    extra: dict[str, Any] = {}
    if way == "nodata":
        values[:, hole] = 7
        extra["nodata"] = 7
    elif way == "nan":
        values[:, hole] = np.nan
    elif way == "mask":
        extra["mask"] = ~hole
    else:
        values = np.concatenate((values, np.where(hole, 0, 255)[None].astype(np.float32)))
        extra["colorinterp"] = [C.red, C.green, C.blue, C.alpha]
    with open_raster(write_raster(values, **extra)) as dataset:
        pixels, valid = read_window(dataset, choose_look(dataset, EIGHT, None, "0,255"), 0, 0, 16, 16, (16, 16))
    assert (valid == ~hole).all()
    assert np.allclose(pixels[hole], (4 * 100 + 8 * 200) / 12 / 255, atol=1e-5)
    assert np.allclose(pixels[5], 100 / 255)


def test_windows_are_averaged_when_they_shrink(write_raster: Any, rng: np.random.Generator) -> None:
    values = rng.integers(0, 256, (3, 32, 32), dtype=np.uint8)
    with open_raster(write_raster(values)) as dataset:
        pixels, _ = read_window(dataset, choose_look(dataset, EIGHT, None, "auto"), 8, 4, 16, 16, (8, 8))
    window = values[:, 4:20, 8:24].astype(float) / 255
    assert np.allclose(np.moveaxis(pixels, -1, 0), window.reshape(3, 8, 2, 8, 2).mean((2, 4)), atol=0.6 / 255)


def test_palettes_are_colours(write_raster: Any) -> None:
    path = write_raster(np.full((1, 16, 16), 3, np.uint8), photometric="palette")
    with rasterio.open(path, "r+") as dataset:
        dataset.write_colormap(1, {3: (255, 0, 51, 255)})
    with open_raster(path) as dataset:
        pixels, _ = read_window(dataset, choose_look(dataset, EIGHT, None, "auto"), 0, 0, 16, 16, (16, 16))
    assert np.allclose(pixels, (1, 0, 0.2))


def test_what_is_no_raster_gets_one_sentence(tmp_path: Any, write_raster: Any, rng: np.random.Generator) -> None:
    with pytest.raises(RasterError, match="no file"), open_raster(tmp_path / "none.tif"):
        pass
    (tmp_path / "empty.tif").touch()
    with pytest.raises(RasterError, match="is empty"), open_raster(tmp_path / "empty.tif"):
        pass
    (tmp_path / "words.tif").write_text("no raster")
    with pytest.raises(RasterError, match=r"words.tif cannot be read"), open_raster(tmp_path / "words.tif"):
        pass
    with pytest.raises(RasterError, match="1 x 1 pixels"), open_raster(write_raster(np.zeros((3, 1, 1), np.uint8))):
        pass
    whole = write_raster(rng.integers(0, 256, (3, 64, 64), dtype=np.uint8), "whole.tif", compress="deflate")
    whole.write_bytes(whole.read_bytes()[:-9000])
    with pytest.raises(RasterError, match=r"whole.tif cannot be read"), open_raster(whole) as dataset:
        read_window(dataset, choose_look(dataset, EIGHT, None, "auto"), 0, 0, 64, 64, (64, 64))
