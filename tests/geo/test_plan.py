from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rasterio.transform import Affine

from mgcap.data.imagery import Imagery
from mgcap.errors import ParameterError, RasterError
from mgcap.geo.indexing import index_raster
from mgcap.geo.mapping import map_raster
from mgcap.geo.opening import open_raster
from mgcap.geo.plan import MapOptions, ModelFile, make_plan, parse_tile

TRAINED = Imagery(side=64, resolution=0.5)
SITE = 'LOCAL_CS["site",UNIT["metre",1],AXIS["Easting",EAST],AXIS["Northing",NORTH]]'


def _plan(raster: Path, imagery: Imagery = TRAINED, **options: Any) -> Any:
    model = ModelFile(Path("tiny.mgcap"), "0" * 64, "torch")
    with open_raster(raster) as dataset:
        return make_plan(dataset, raster, imagery, model, MapOptions(**options))


@pytest.fixture
def write(write_raster: Any) -> Any:
    def write(**profile: Any) -> Path:
        path: Path = write_raster(np.zeros((3, 150, 200), np.uint8), **profile)
        return path

    return write


@pytest.mark.parametrize("text", ["9999999999999999999", "9" * 30 + "m", "1000000001px"])
def test_tiles_beyond_all_measure_are_refused(text: str, write: Any) -> None:
    with pytest.raises(RasterError, match="`tile` takes at most 1,000,000,000"):
        parse_tile(text)
    with pytest.raises(RasterError, match="`tile` takes at most"):
        _plan(write(), tile=text)


@pytest.mark.parametrize(
    "text", ["9" * 400, "1" * 200_000 + "x", "0." + "0" * 400, "0.0000", "1e3", "nan", "inf", "٣m"]
)
def test_other_numbers_are_refused_in_one_short_sentence(text: str) -> None:
    with pytest.raises(RasterError, match="`tile` takes metres or pixels") as error:
        parse_tile(text)
    assert len(str(error.value)) < 120


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), -0.1, 1.1])
def test_parts_that_are_none_are_refused(wrong: float, write: Any) -> None:
    with pytest.raises(RasterError, match=r"`overlap` takes 0 to 0\.9"):
        _plan(write(), overlap=wrong)
    with pytest.raises(RasterError, match="`min_valid` takes 0 to 1"):
        _plan(write(), min_valid=wrong)


def test_a_tile_may_be_larger_than_the_raster(write: Any) -> None:
    plan = _plan(write(), tile="999999999m")
    assert (len(plan.grid), plan.shape) == (1, (150, 200))


def test_a_tile_that_no_memory_holds_is_refused(write: Any) -> None:
    coarse = write(transform=Affine(1000, 0, 400_000, 0, -1000, 5_600_000))
    with pytest.raises(RasterError, match=r"tiles of 400,\d+ x 300,\d+ pixels, over the limit.*smaller `tile`"):
        _plan(coarse, tile="1000000px")
    assert _plan(coarse, Imagery(side=64), tile="1000000px").shape == (150, 200)


@pytest.mark.parametrize(
    ("crs", "transform"),
    [
        ("EPSG:3413", (0.485, 0, -48.5, 0, -0.485, 36)),  # the pole in the middle
        ("EPSG:3832", (0.5, 0, 3_339_535, 0, -0.5, 0)),  # the antimeridian in the middle
        ("EPSG:4326", (4.5e-6, 0, 180 - 4.5e-4, 0, -4.5e-6, 0)),
    ],
)
def test_tiles_are_as_large_at_the_seams_of_maps(write: Any, crs: str, transform: Any) -> None:
    plan = _plan(write(crs=crs, transform=Affine(*transform)))
    assert plan.cell == pytest.approx((64, 64), abs=1)
    assert plan.shape == (64, 64)


def test_tiles_of_a_site_are_in_pixels(write: Any) -> None:
    site = write(crs=SITE)
    assert _plan(site).cell == (64, 64)
    with pytest.raises(RasterError, match="does not say where it lies"):
        _plan(site, tile="30m")


def test_geocentric_coordinates_are_refused(write: Any) -> None:
    with pytest.raises(RasterError, match=r"scene\.tif cannot be mapped: .*Geocentric"):
        _plan(write(crs="EPSG:4978"))


@pytest.mark.parametrize("function", [map_raster, index_raster])
def test_a_mistyped_option_is_said_before_anything_is_opened(function: Any, tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match=r"^\w+_raster has no parameter 'overlp' \(did you mean 'overlap'\?\)$"):
        function(None, "none.mgcap", tmp_path / "none.tif", tmp_path / "x", overlp=0.5)
    with pytest.raises(ParameterError, match="did you mean 'workers'"):
        function(None, "none.mgcap", tmp_path / "none.tif", tmp_path / "x", worker=None)
