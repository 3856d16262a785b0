"""Cells of rasters in memory, and where they lie."""

import numpy as np
import pytest
from pyproj import CRS, Geod, Transformer

from mgcap.errors import RasterError
from mgcap.geo.earth import ground_metres
from mgcap.geo.index import create_index
from mgcap.labelling.pool import open_pool, places_of, tile_side
from tests.geo.indexes import about_of, cells_of, plan_of

UTM = CRS.from_epsg(32632).to_wkt()


def _index(path, rows=9, columns=8, **given):
    plan = plan_of(rows, columns)
    index = create_index(path, about_of(plan, **given), 5)
    for chunk in range(plan.chunks):
        index.write(chunk, cells_of(plan, chunk))
    return index


def test_every_cell_with_data_is_there_with_its_vector(tmp_path):
    pool = open_pool([_index(tmp_path / "a.zarr"), _index(tmp_path / "b.zarr", 3, 4)])
    assert len(pool) == (72 - 24) + (12 - 4)
    for raster, row, column in ((0, 0, 1), (0, 8, 7), (1, 2, 3)):
        number = pool.number(raster, row, column)
        assert number is not None and pool.cells[number].tolist() == [raster, row, column]
        first = row * (8 if raster == 0 else 4) + column
        assert pool.vectors[number].tolist() == [first + n / 8 for n in range(5)]
    assert pool.number(0, 0, 0) is None and pool.number(1, 8, 7) is None
    assert np.allclose(pool.directions.float().norm(dim=1), 1, atol=1e-3)


def test_what_takes_a_while_is_made_when_it_is_asked_for_and_once(tmp_path):
    pool = open_pool([_index(tmp_path / "a.zarr")])
    likeness = pool.likeness
    assert not {"mean", "lengths", "spread"} & set(vars(likeness)) and not {"_tree", "_numbers"} & set(vars(pool))
    pool.warm()
    assert {"mean", "lengths", "spread"} <= set(vars(likeness)) and {"_tree", "_numbers"} <= set(vars(pool))


def test_rasters_without_a_place_lie_apart_and_count_pixels(tmp_path):
    pool = open_pool([_index(tmp_path / "a.zarr"), _index(tmp_path / "b.zarr")])
    one, two = (pool.places[pool.cells[:, 0] == number] for number in (0, 1))
    assert pool.tile == pytest.approx(20) and np.ptp(one[:, 0]) == 70
    assert np.abs(one[:, None] - two).max(-1).min() > 1e6


def test_places_are_metres_of_the_ground(tmp_path):
    """Against distances on the ellipsoid; one place has the same metres in two rasters."""
    where = (10.0, 0, 500_000, 0, -10.0, 5_000_000)
    index = _index(tmp_path / "a.zarr", crs=UTM, transform=where)
    pool = open_pool([index])
    way = Geod(ellps="WGS84")
    corners = np.array([[0, 0], [0, 7], [8, 0]])
    found = places_of(index, corners)
    from pyproj import Transformer

    t = Transformer.from_crs(32632, 4326, always_xy=True)
    lon, lat = t.transform(500_000 + (corners[:, 1] + 0.5) * 10, 5_000_000 - (corners[:, 0] + 0.5) * 10)
    for other in (1, 2):
        metres = way.inv(lon[0], lat[0], lon[other], lat[other])[2]
        assert np.linalg.norm(found[other] - found[0]) == pytest.approx(metres, rel=0.01)
    assert pool.tile == pytest.approx(20, rel=0.01)
    shifted = _index(tmp_path / "b.zarr", crs=UTM, transform=(10.0, 0, 500_020, 0, -10.0, 4_999_970))
    assert np.allclose(places_of(shifted, np.array([[0, 0]]), 1), places_of(index, np.array([[3, 2]])), atol=0.01)


def test_degrees_lie_apart_and_whole_turns_do_not_count():
    wgs = CRS.from_epsg(4326)
    points = np.array([[10.5, 50.0], [11.5, 50.0], [370.5, 50.0], [-179.5, 0.0], [180.5, 0.0]])
    found = ground_metres(wgs, points)
    assert np.allclose(found[0], found[2], atol=1e-3) and np.allclose(found[3], found[4], atol=1e-3)
    assert np.abs(found[0] - found[1]).max() > 1e5


@pytest.mark.parametrize("lon", [10, 9.6])
def test_the_side_of_a_tile_does_not_jump_where_a_degree_begins(tmp_path, lon):
    """Also where the middle cells lie on both sides of a whole degree, whose places lie apart."""
    x, y = Transformer.from_crs("OGC:CRS84", UTM, always_xy=True).transform(lon, 50)
    index = _index(tmp_path / "a.zarr", crs=UTM, transform=(10, 0, x - 50, 0, -10, y + 50))
    assert tile_side(index) == pytest.approx(20, rel=0.005)


def test_indexes_of_other_descriptors_are_refused(tmp_path):
    one, two = _index(tmp_path / "a.zarr"), _index(tmp_path / "b.zarr", descriptor="e")
    with pytest.raises(RasterError, match="other descriptors"):
        open_pool([one, two])
    plan = plan_of(1, 1)
    empty = create_index(tmp_path / "c.zarr", about_of(plan), 5)
    empty.write(0, cells_of(plan, 0))
    with pytest.raises(RasterError, match="no cell with data"):
        open_pool([empty])
