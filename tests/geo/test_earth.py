from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import rasterio
from pyproj import Geod
from rasterio.transform import Affine, from_origin

from mgcap.geo.earth import pixel_metres, square_metres
from mgcap.geo.raster import open_raster


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
    from pyproj import Transformer

    corners = np.array([[[x, y], [x + side, y], [x + side, y + side], [x, y + side]]])
    lon, lat = Transformer.from_crs(crs, 4326, always_xy=True).transform(*corners[0].T)
    expected = abs(Geod(ellps="WGS84").polygon_area_perimeter(lon, lat)[0])
    assert square_metres(rasterio.CRS.from_epsg(crs), corners)[0] == pytest.approx(expected, rel=1e-4)
