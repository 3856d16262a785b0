from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
import shapely
from pyproj import Geod, Transformer
from rasterio.transform import Affine

from mgcap.errors import RasterError
from mgcap.geo.grid import Grid
from mgcap.geo.polygons import Place, cell_areas, cell_corners, write_polygons
from mgcap.geo.votes import ClassMap

WGS84 = Geod(ellps="WGS84")
EARTH = 510_065_621_724_089.0
GRID = Grid(150, 100, 32, 32)  # 5 columns, 4 rows; the last ones are smaller


def _place(crs: str | None, *transform: float) -> Place:
    known = None if crs is None else rasterio.CRS.from_string(crs)
    return Place(Affine(*transform), known, datetime.datetime(2024, 5, 1, tzinfo=datetime.UTC))


def _written(path: Path, place: Place, grid: Grid = GRID) -> Any:
    shape = (grid.rows, grid.columns)
    found = ClassMap(np.full((*shape, 2), 0.5, np.float32), np.zeros(shape, np.int16), np.zeros(shape, np.float32))
    write_polygons(path, found, grid, place, ["a", "b"])
    return json.loads(path.read_text())["features"]


def _parts(geometry: Any) -> Any:
    assert geometry["type"] in ("Polygon", "MultiPolygon")
    parts = geometry["coordinates"]
    parts = [parts] if geometry["type"] == "Polygon" else parts
    assert (len(parts) > 1) == (geometry["type"] == "MultiPolygon")
    return parts


def _dense(ring: Any, steps: int = 60) -> Any:
    ends = np.roll(ring, -1, 0)
    return np.concatenate([a + np.arange(steps)[:, None] / steps * (b - a) for a, b in zip(ring, ends, strict=True)])


def _geodesic_area(geometry: Any) -> float:
    """Of outlines that are straight in degrees, as the format says."""
    areas = []
    for (ring,) in _parts(geometry):
        area = abs(WGS84.polygon_area_perimeter(*_dense(np.array(ring[:-1])).T)[0])
        areas.append(min(area, EARTH - area))
    return sum(areas)


def _true_areas(place: Place, grid: Grid) -> Any:
    """Of cells whose edges are straight in the raster's coordinates."""
    cells = np.array([(row, column) for row in range(grid.rows) for column in range(grid.columns)])
    way = Transformer.from_crs(place.crs.to_wkt(), 4326, always_xy=True)
    points = [way.transform(*_dense(ring).T) for ring in cell_corners(grid, place, cells)]
    return [abs(WGS84.polygon_area_perimeter(*both)[0]) for both in points]


def _check(features: Any, place: Place, grid: Grid = GRID, rel: float = 1e-3) -> None:
    for feature, expected in zip(features, _true_areas(place, grid), strict=True):
        shape = shapely.from_geojson(json.dumps(feature["geometry"]))
        assert shape.is_valid, shapely.is_valid_reason(shape)
        for part in _parts(feature["geometry"]):
            for ring in part:
                assert ring[0] == ring[-1]
                assert np.abs(ring).max(0)[0] <= 180 and np.abs(ring).max(0)[1] <= 90
            assert shapely.LinearRing(part[0]).is_ccw
            assert np.ptp(np.array(part[0])[:, 0]) <= 180 or np.abs(part[0]).max() == 180
        assert _geodesic_area(feature["geometry"]) == pytest.approx(expected, rel=rel)
        assert feature["properties"]["area_m2"] == pytest.approx(expected, rel=1e-4, abs=0.1)  # the oracle sums to 1/32


@pytest.mark.parametrize(
    ("crs", "transform"),
    [
        ("EPSG:3832", (5, 0, 3_339_584 - 205, 0, -5, -1_800_000)),
        ("EPSG:3832", (3, 4, 3_339_584 - 305, 4, -3, 5_000_000)),  # rotated
        ("EPSG:3460", (5, 0, 2_133_080 - 405, 0, -5, 4_000_000)),
        ("EPSG:4326", (0.002, 0, 179.9, 0, -0.002, 0.1)),
        ("EPSG:4326", (0.002, 0, -180.1, 0, -0.002, 50)),
        ("EPSG:4326", (0.002, 0, 539.9, 0, -0.002, 50)),
        ("EPSG:4269", (0.002, 0, 179.9, 0, 0.002, -60)),  # south up
        ("EPSG:3857", (10, 0, 20_037_508.34 - 405, 0, -10, 8_000_000)),
    ],
)
def test_cells_across_the_antimeridian_are_cut(tmp_path: Path, crs: str, transform: Any) -> None:
    place = _place(crs, *transform)
    features = _written(tmp_path / "map.geojson", place)
    _check(features, place)
    both = [feature["geometry"] for feature in features if feature["geometry"]["type"] == "MultiPolygon"]
    assert GRID.rows <= len(both) <= GRID.rows + GRID.columns
    for geometry in both:
        west, east = sorted(_parts(geometry), key=lambda part: part[0][0][0])
        assert np.max(west[0], 0)[0] < 0 < np.min(east[0], 0)[0]
        assert np.min(west[0], 0)[0] == -180 and np.max(east[0], 0)[0] == 180


def test_an_edge_on_the_antimeridian_cuts_nothing(tmp_path: Path) -> None:
    place = _place("EPSG:4326", 0.002, 0, 180 - 2 * 32 * 0.002, 0, -0.002, 0)
    features = _written(tmp_path / "map.geojson", place)
    _check(features, place)
    assert {feature["geometry"]["type"] for feature in features} == {"Polygon"}
    assert np.max(features[1]["geometry"]["coordinates"][0], 0)[0] == 180
    assert np.min(features[2]["geometry"]["coordinates"][0], 0)[0] == -180


def test_longitudes_up_to_360_come_out_as_up_to_180(tmp_path: Path) -> None:
    place = _place("EPSG:4326", 1e-5, 0, 270.0, 0, -1e-5, 45)
    features = _written(tmp_path / "map.geojson", place)
    _check(features, place)
    assert features[0]["geometry"]["coordinates"][0][0][0] == pytest.approx(-90, abs=1e-3)


@pytest.mark.parametrize("crs", ["EPSG:3413", "EPSG:3031", "EPSG:3574"])
@pytest.mark.parametrize("size", [0.5, 20, 5_000])
@pytest.mark.parametrize(
    ("x", "y"),
    [
        (-70, 40),  # the pole within a cell
        (-64, 64),  # at the corners of four
        (-64, 40),  # on the edge between two
        (-96.1, 64.1),  # close to a corner
        (-90, 30),
        (300, 400),  # not far
    ],
)
def test_cells_at_a_pole_go_by_way_of_it(tmp_path: Path, crs: str, size: float, x: float, y: float) -> None:
    place = _place(crs, size, 0, x * size, 0, -size, y * size)
    features = _written(tmp_path / "map.geojson", place)
    _check(features, place)
    shapes = [shapely.from_geojson(json.dumps(feature["geometry"])) for feature in features]
    common = shapely.area(shapely.intersection(shapes[:-1], shapes[1:]))
    assert common.max() < 1e-3 * shapely.area(shapes).max()
    around = [shape for shape in shapes if np.ptp(shape.bounds[::2]) == 360 and shape.geom_type == "Polygon"]
    assert len(around) == ((x, y) in [(-70, 40), (-96.1, 64.1), (-90, 30)])
    assert all(90 in np.abs(shape.bounds[1::2]) for shape in around)


def test_rows_up_to_the_pole_in_degrees(tmp_path: Path) -> None:
    place = _place("EPSG:4326", 0.01, 0, 10, 0, -0.01, 90)
    _check(_written(tmp_path / "map.geojson", place), place)


@pytest.mark.parametrize("crs", [None, 'LOCAL_CS["site",UNIT["metre",1],AXIS["Easting",EAST],AXIS["Northing",NORTH]]'])
def test_cells_of_a_site_keep_its_units(tmp_path: Path, crs: str | None) -> None:
    place = _place(crs, 2, 0, 1000, 0, -2, 1000)
    features = _written(tmp_path / "map.geojson", place)
    assert features[0]["properties"]["area_units2"] == 64 * 64
    assert "area_m2" not in features[0]["properties"]
    assert sorted(features[0]["geometry"]["coordinates"][0][:-1]) == [
        [1000, 936],
        [1000, 1000],
        [1064, 936],
        [1064, 1000],
    ]
    assert shapely.from_geojson(json.dumps(features[0]["geometry"])).exterior.is_ccw


def test_small_cells_have_an_outline_and_an_area(tmp_path: Path) -> None:
    grid = Grid(10, 10, 1, 1)
    place = _place("EPSG:25832", 2e-4, 0, 500_000, 0, -2e-4, 5_600_000)
    features = _written(tmp_path / "map.geojson", place, grid)
    assert features[0]["properties"]["area_m2"] == pytest.approx(4e-8, rel=0.02)
    shapes = [shapely.from_geojson(json.dumps(feature["geometry"])) for feature in features]
    assert all(shape.is_valid and len(shape.exterior.coords) == 5 and shape.area > 0 for shape in shapes)


def test_cells_are_those_of_the_grid() -> None:
    cells = np.array([(row, column) for row in range(GRID.rows) for column in range(GRID.columns)])
    corners = cell_corners(GRID, _place(None, 1, 0, 0, 0, 1, 0), cells)
    boxes = [GRID.box(int(row), int(column)) for row, column in cells]
    assert np.concatenate((corners.min(1), corners.max(1)), 1).tolist() == [list(map(float, box)) for box in boxes]


def test_cells_beyond_the_pole_are_refused() -> None:
    with pytest.raises(RasterError, match="no area"):
        cell_areas(GRID, _place("EPSG:4326", 0.01, 0, 10, 0, 0.01, 90), np.array([[0, 0]]))
