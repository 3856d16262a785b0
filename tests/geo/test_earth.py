from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import rasterio
from pyproj import Geod, Transformer
from rasterio.transform import Affine, from_origin

from mgcap.errors import RasterError
from mgcap.geo.earth import on_earth, pixel_metres, square_metres, whole_offset
from mgcap.geo.opening import open_raster


@pytest.mark.parametrize(
    ("crs", "transform", "expected"),
    [
        ("EPSG:25832", from_origin(500_000, 5_600_000, 0.5, 0.25), (0.5, 0.25)),
        ("EPSG:25832", Affine(3**0.5, 1, 500_000, 1, -(3**0.5), 5_600_000), (2, 2)),
        ("EPSG:2263", from_origin(981_000, 200_000, 1, 1), (0.3048, 0.3048)),
        ("EPSG:3857", from_origin(0, 8_399_738, 1, 1), (0.5, 0.5)),  # 60 degrees north
        ("EPSG:4326", from_origin(0, 60, 1e-5, 1e-5), (0.558, 1.114)),
    ],
)
def test_pixels_in_metres(write_raster: Any, crs: str, transform: Any, expected: Any) -> None:
    with open_raster(write_raster(np.zeros((1, 16, 16), np.uint8), crs=crs, transform=transform)) as dataset:
        assert pixel_metres(dataset) == pytest.approx(expected, rel=6e-3)


def test_no_place_no_metres(write_raster: Any) -> None:
    with open_raster(write_raster(np.zeros((1, 16, 16), np.uint8), crs=None)) as dataset:
        assert pixel_metres(dataset) is None


@pytest.mark.parametrize(("crs", "x", "y", "side"), [(3857, 1_500_000, 6_900_000, 80), (4326, 12.0, -33.0, 1e-3)])
def test_areas_are_those_on_the_ground(crs: int, x: float, y: float, side: float) -> None:
    corners = np.array([[[x, y], [x + side, y], [x + side, y + side], [x, y + side]]])
    lon, lat = Transformer.from_crs(crs, 4326, always_xy=True).transform(*corners[0].T)
    expected = abs(Geod(ellps="WGS84").polygon_area_perimeter(lon, lat)[0])
    assert square_metres(rasterio.CRS.from_epsg(crs), corners)[0] == pytest.approx(expected, rel=1e-4)


WGS84 = Geod(ellps="WGS84")
SITE = 'LOCAL_CS["site",UNIT["metre",1],AXIS["Easting",EAST],AXIS["Northing",NORTH]]'


def _square(x: float, y: float, side: float) -> Any:
    return np.array([[x, y], [x + side, y], [x + side, y + side], [x, y + side]], float)


def _geodesic_area(crs: str, ring: Any) -> float:
    """With edges that are straight in the raster's coordinates, by many points."""
    ends = np.roll(ring, -1, 0)
    points = np.concatenate([a + np.arange(200)[:, None] / 200 * (b - a) for a, b in zip(ring, ends, strict=True)])
    lon, lat = Transformer.from_crs(crs, 4326, always_xy=True).transform(*points.T)
    return abs(WGS84.polygon_area_perimeter(lon, lat)[0])


@pytest.mark.parametrize(
    ("crs", "x", "y"),
    [
        ("EPSG:3832", 3_339_584, -1_800_000),  # 180 degrees in the middle of the map
        ("EPSG:3460", 2_001_000, 4_000_000),  # Fiji
        ("EPSG:32660", 830_000, 6_000_000),  # beyond the edge of the last zone
        ("EPSG:3857", 20_037_500, 8_000_000),  # beyond the edge of the map
        ("EPSG:3413", -20, -11),  # the north pole inside
        ("EPSG:3413", 0, 0),  # at a corner
        ("EPSG:3413", 0, -16),  # on an edge
        ("EPSG:3413", 40, -300),  # near
        ("EPSG:3031", -20, -11),  # the south pole inside
        ("EPSG:32633", 450_000, 9_997_960),  # about the pole by a zone that is not made for it
        ("EPSG:3035", 4_321_000, 8_000_000),
    ],
)
@pytest.mark.parametrize("side", [32, 2_000, 90_000])
def test_areas_at_the_seams_of_maps(crs: str, x: float, y: float, side: float) -> None:
    ring = _square(x, y, side)
    expected = _geodesic_area(crs, ring)
    found = square_metres(rasterio.CRS.from_string(crs), np.stack((ring, ring[::-1])))
    assert found == pytest.approx([expected, expected], rel=1e-4)
    assert 0.05 * side**2 < expected < 1.2 * side**2


@pytest.mark.parametrize(
    ("lon", "lat", "side"),
    [(179.9, 10, 0.5), (359.9, 10, 0.5), (181, -40, 0.01), (-180.1, 0, 0.2), (12, 89.75, 0.25), (200, -90, 0.1)],
)
@pytest.mark.parametrize("crs", ["EPSG:4326", "EPSG:4269", "EPSG:4258"])
def test_areas_in_degrees_at_their_ends(crs: str, lon: float, lat: float, side: float) -> None:
    ring = _square(lon, lat, side)
    # the parallels have no points between in the oracle's geodesics, so they get many
    expected = _geodesic_area("EPSG:4326", ring)
    assert square_metres(rasterio.CRS.from_string(crs), ring[None])[0] == pytest.approx(expected, rel=1e-4)


def test_a_grid_of_cells_around_the_pole_covers_the_whole() -> None:
    corners = np.stack([_square(x, y, 64) for x in range(-640, 640, 64) for y in range(-640, 640, 64)])
    crs = rasterio.CRS.from_epsg(3413)
    areas = square_metres(crs, corners)
    assert areas == pytest.approx(64 * 64 * 1.0631, rel=1e-3)  # the scale is true at 70 degrees
    assert areas.sum() == pytest.approx(square_metres(crs, _square(-640, -640, 1280)[None])[0], rel=1e-6)


def test_what_sticks_out_beyond_the_pole_is_cut_off() -> None:
    crs = rasterio.CRS.from_epsg(4326)
    beyond, up_to = (square_metres(crs, np.array([[[0, 89.5], [1, 89.5], [1, top], [0, top]]])) for top in (90.5, 90))
    assert beyond[0] == pytest.approx(up_to[0], rel=1e-12)


def test_grads_and_other_meridians() -> None:
    ring = _square(2.5, 52.0, 0.01)  # grads from Paris
    found = square_metres(rasterio.CRS.from_epsg(4807), ring[None])[0]
    assert found == pytest.approx(_geodesic_area("EPSG:4807", ring), rel=1e-4)


@pytest.mark.parametrize(("crs", "place"), [(None, False), (SITE, False), ("EPSG:4326", True), ("EPSG:9518", True)])
def test_a_site_has_no_place_on_earth(crs: Any, place: bool) -> None:
    assert on_earth(crs and rasterio.CRS.from_string(crs)) is place


@pytest.mark.parametrize(
    ("crs", "reason"),
    [
        ("EPSG:4978", "not a map of the ground"),
        ("EPSG:5703", "not a map of the ground"),
        ("+proj=longlat +a=3396190 +b=3376200 +no_defs", "does not lead to longitude and latitude"),  # Mars
    ],
)
def test_other_coordinates_are_refused(crs: str, reason: str) -> None:
    with pytest.raises(RasterError, match=reason):
        square_metres(rasterio.CRS.from_string(crs), _square(0, 0, 1)[None])


@pytest.mark.parametrize(
    ("crs", "x", "y"),
    [("EPSG:4326", 500_000, 50), ("EPSG:25832", 1e12, 0), ("EPSG:25832", 500_000, 5.6e9), ("EPSG:4326", 0, 1e9)],
)
def test_places_off_the_earth_are_refused(crs: str, x: float, y: float) -> None:
    known = rasterio.CRS.from_string(crs)
    with pytest.raises(RasterError, match="not lie on the Earth"):
        square_metres(known, _square(x, y, 1)[None])


@pytest.mark.parametrize(
    ("crs", "transform", "expected"),
    [
        ("EPSG:3413", Affine(0.5, 0, -4, 0, -0.5, 4), (0.5156, 0.5156)),  # the pole, where its scale is 0.9698
        ("EPSG:4326", Affine(1e-5, 0, 180 - 8e-5, 0, -1e-5, 8e-5), (1.113, 1.106)),  # the antimeridian
        ("EPSG:4326", Affine(1e-5, 0, 359.9, 0, -1e-5, 0), (1.113, 1.106)),
        ("EPSG:3832", Affine(2, 0, 3_339_570, 0, -2, 16), (2, 2)),
    ],
)
def test_pixels_in_metres_at_the_seams_of_maps(write_raster: Any, crs: str, transform: Any, expected: Any) -> None:
    with open_raster(write_raster(np.zeros((1, 16, 16), np.uint8), crs=crs, transform=transform)) as dataset:
        assert pixel_metres(dataset) == pytest.approx(expected, rel=8e-3)


class _Dataset:
    """What cannot be written to a GeoTIFF."""

    name, width, height = "scene.tif", 16, 16

    def __init__(self, crs: Any, *transform: float) -> None:
        self.crs = crs if crs is None else rasterio.CRS.from_string(crs)
        self.transform = Affine(*transform)


@pytest.mark.parametrize("crs", [None, SITE, "EPSG:25832", "EPSG:4326"])
@pytest.mark.parametrize(
    "transform",
    [
        (0, 0, 9, 0, -1, 50),
        (1, 0, 9, 0, 0, 50),
        (1, 2, 9, 2, 4, 50),
        (np.nan, 0, 9, 0, -1, 50),
        (1, 0, np.inf, 0, -1, 50),
        (1e-200, 0, 9, 0, -1e-200, 50),
        (1e300, 0, 9, 0, -1e300, 50),
    ],
)
def test_pixels_without_an_area_are_refused(crs: Any, transform: Any) -> None:
    with pytest.raises(RasterError, match=r"scene\.tif has pixels without an area"):
        pixel_metres(_Dataset(crs, *transform))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("crs", "transform", "reason"),
    [
        ("EPSG:25832", (1e-5, 0, 500_000, 0, -1e-5, 5_600_000), "pixels of 1e-05 x 1e-05 m"),
        ("EPSG:25832", (2e6, 0, 500_000, 0, -0.1, 5_600_000), "which are no map|not lie on the Earth"),
        ("EPSG:4326", (1, 0, 0, 0, 1, 90), "which are no map"),
        ("EPSG:4326", (360, 0, 0, 0, -0.01, 0), "which are no map|not lie on the Earth"),
        ("EPSG:4978", (1, 0, 0, 0, -1, 0), r"scene\.tif cannot be mapped: .*not a map of the ground"),
        ("EPSG:4326", (1, 0, 500_000, 0, -1, 0), r"scene\.tif cannot be mapped: .*do not lie on the Earth"),
    ],
)
def test_other_pixels_are_refused(crs: str, transform: Any, reason: str) -> None:
    with pytest.raises(RasterError, match=reason):
        pixel_metres(_Dataset(crs, *transform))  # type: ignore[arg-type]


def test_pixels_from_the_origin_of_the_coordinates() -> None:
    utm = "EPSG:25832"
    assert whole_offset(Affine(0.5, 0, 500_000, 0, -0.5, 5_600_000), utm) == (1_000_000, -11_200_000)
    half = Affine(0.3, 0, 0.15, 0, -0.3, -0.15)  # as pixels whose middles have round coordinates
    for column, row in ((0, 0), (1, 3), (40_001, 7), (1_000_000, 1)):
        x, y = whole_offset(half @ Affine.translation(column, row), utm)
        first = whole_offset(half, utm)
        assert (x - first[0], y - first[1]) == (column, row)
    for transform, crs in (
        (Affine(0.5, 0, 5e5, 0, -0.5, 5e6), None),
        (Affine(0.5, 0.1, 5e5, 0.1, -0.5, 5e6), utm),
        (Affine(0, 0, 5e5, 0, 0, 5e6), utm),
        (Affine(1e-9, 0, 5e5, 0, -1e-9, 5e6), utm),
    ):
        assert whole_offset(transform, crs) == (0, 0)
