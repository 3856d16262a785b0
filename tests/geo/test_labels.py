"""Which cells points, lines and polygons label, against counts by hand and by pixels."""

import dataclasses
import datetime
from pathlib import Path

import numpy as np
import pytest
import rasterio.crs
import shapely
from pyproj import CRS
from rasterio.features import rasterize
from rasterio.transform import Affine
from shapely.geometry import GeometryCollection, LinearRing, LineString, MultiPoint, Point, Polygon, box

from mgcap.errors import DataError
from mgcap.geo.cellmap import CellMap
from mgcap.geo.cells import Place
from mgcap.geo.grid import Grid
from mgcap.geo.labels import cells_of_index, classes_in, label_cells, left_out_of, none_labelled, together
from mgcap.geo.vectors import Vectors
from tests.geo.indexes import about_of, cells_of, plan_of

WHERE = Affine(1, 0, 500_000, 0, -1, 5_000_000)
NOW = datetime.datetime.now(datetime.UTC)


def _cells(rows: int = 6, columns: int = 8, crs: str | None = "EPSG:32632") -> CellMap:
    """Cells of 10 x 10 m; the first row has no data."""
    numbers = np.zeros((rows, columns), np.int32)
    numbers[0] = -1
    place = Place(WHERE, rasterio.crs.CRS.from_string(crs) if crs else None, NOW)
    return CellMap(Path("scene.tif"), ("",), numbers, Grid(10 * columns, 10 * rows, 10, 10), place)


def _at(x: float, y: float) -> tuple[float, float]:
    """A place in metres right of and below the corner."""
    return 500_000 + x, 5_000_000 - y


def _square(x: float, y: float, x1: float, y1: float) -> Polygon:
    return box(500_000 + x, 5_000_000 - y1, 500_000 + x1, 5_000_000 - y)


def _vectors(shapes: list, names: list, crs: str | None = "EPSG:32632") -> Vectors:
    return Vectors("labels.gpkg", np.array([*shapes, None], object)[:-1], {"class": names},
                   CRS.from_user_input(crs) if crs else None)  # fmt: skip


def _found(labelled) -> dict[tuple[int, int], str]:
    return {tuple(cell): labelled.classes[k] for cell, k in zip(labelled.cells.tolist(), labelled.targets, strict=True)}


def test_a_point_labels_the_cell_below_it_and_cells_count_once():
    shapes = [Point(*_at(15, 15)), Point(*_at(16, 12)), MultiPoint([_at(35, 25), _at(45, 25)])]
    found = label_cells(_cells(), _vectors(shapes, ["a", "a", "b"]))
    assert _found(found) == {(1, 1): "a", (2, 3): "b", (2, 4): "b"}
    assert found.counts == {"a": 1, "b": 2} and not found.left_out


def test_cells_of_several_classes_are_counted_not_guessed():
    shapes = [Point(*_at(15, 15)), Point(*_at(16, 12)), _square(10, 20, 30, 40), _square(20, 20, 30, 30)]
    found = label_cells(_cells(), _vectors(shapes, ["a", "b", "a", "b"]))
    assert _found(found) == {(2, 1): "a", (3, 1): "a", (3, 2): "a"}
    assert found.left_out["cells with labels of several classes"] == 2
    assert "cells that polygons of several classes cover" not in found.left_out  # they are among these


def test_what_polygons_contradict_each_other_about_is_not_settled_by_a_point_or_line():
    both = [_square(20, 20, 30, 30)] * 2
    line = LineString([_at(15, 25), _at(35, 25)])
    found = label_cells(_cells(), _vectors([*both, Point(*_at(25, 25)), line], ["a", "b", "a", "b"]))
    assert _found(found) == {(2, 1): "b", (2, 3): "b"} and found.conflicts.tolist() == [[2, 2]]
    assert found.left_out == {"cells with labels of several classes": 1}
    beside = label_cells(_cells(), _vectors([_square(20, 20, 24, 30), Point(*_at(28, 25))], ["a", "b"]))
    assert _found(beside) == {(2, 2): "b"} and not len(beside.conflicts)


def test_a_file_does_not_settle_what_another_contradicts_itself_about():
    cells, names, here = _cells(), ("a", "b"), Point(*_at(25, 25))
    torn = label_cells(cells, _vectors([here, here, Point(*_at(15, 15))], ["a", "b", "b"]), "class", names)
    sure = label_cells(cells, _vectors([here, Point(*_at(15, 15))], ["a", "a"]), "class", names)
    for order in ([torn, sure], [sure, torn, torn], [torn, sure, sure]):
        found = together(order)
        assert _found(found) == {} and found.left_out == {"cells with labels of several classes": 2}
    assert _found(together([sure, sure])) == _found(sure)


def test_labels_on_several_rasters_are_left_out_once():
    """What one raster has not another may; what no raster has counts once."""
    west = _cells()
    east = dataclasses.replace(west, place=dataclasses.replace(west.place, transform=Affine.translation(80, 0) @ WHERE))
    shapes = [Point(*_at(15, 15)), Point(*_at(95, 15)), Point(*_at(-9, 15)), Point(*_at(85, 5)), Point(*_at(25, 25))]
    areas = [_square(0, 20, 160, 30), _square(300, 0, 400, 60), Point(*_at(15, 15))]
    vectors = _vectors([*shapes, *areas, None], ["a"] * 4 + [None] + ["a"] * 4)
    found = [label_cells(own, vectors) for own in (west, east)]
    assert left_out_of(found) == {
        "features without a class": 1, "features without a geometry": 1, "points outside of the raster": 1,
        "points on cells without data": 1, "polygons outside of the raster": 1,
    }  # fmt: skip
    assert found[0].left_out["points outside of the raster"] == 3
    assert "polygons outside of the raster" in str(none_labelled([vectors], ["a.tif", "b.tif"], found))


def test_a_polygon_labels_what_it_covers_by_more_than_half():
    """Against counting pixels of a tenth of the cell's side."""
    rng = np.random.default_rng(0)
    cells = _cells()
    for _ in range(5):
        corners = [_at(*(rng.random(2) * (80, 50) + (0, 10))) for _ in range(3)]
        shape = Polygon(corners)
        pixels = rasterize([shape], (600, 800), transform=Affine(0.1, 0, 500_000, 0, -0.1, 5_000_000))
        share = pixels.reshape(6, 100, 8, 100).mean((1, 3))
        found = label_cells(cells, _vectors([shape], ["a"]))
        wanted = {tuple(cell) for cell in np.argwhere((share > 0.5) & (cells.numbers >= 0)).tolist()}
        unsure = {tuple(cell) for cell in np.argwhere(abs(share - 0.5) < 0.01).tolist()}
        assert set(_found(found)) ^ wanted <= unsure


def test_a_line_labels_cells_that_it_runs_through():
    line = LineString([_at(5, 35), _at(43, 35)])  # 5 m, then 10, 10, 10 and 3 m of cells
    found = label_cells(_cells(), _vectors([line], ["road"]))
    assert set(_found(found)) == {(3, 0), (3, 1), (3, 2), (3, 3)}
    assert found.left_out == {"cells that lines only touch": 1}
    ring = label_cells(_cells(), _vectors([LinearRing([_at(15, 15), _at(35, 15), _at(35, 35)])], ["road"]))
    assert (1, 2) in _found(ring)


def test_geometries_of_any_kind_are_taken_together():
    nested = GeometryCollection([Point(*_at(5, 15)), GeometryCollection([_square(20, 20, 30, 30)])])
    shapes = [nested, LineString([_at(40, 45), _at(60, 45)]), None, Polygon(), Point(*_at(75, 55))]
    found = label_cells(_cells(), _vectors(shapes, ["a", "b", "a", "b", None]))
    assert _found(found) == {(1, 0): "a", (2, 2): "a", (4, 4): "b", (4, 5): "b"}
    assert found.left_out == {"features without a class": 1, "features without a geometry": 2}


def test_what_lies_elsewhere_is_counted():
    shapes = [Point(*_at(5, 5)), Point(*_at(-50, 5)), _square(900, 10, 990, 40), LineString([_at(-9, 9), _at(-9, 99)])]
    found = label_cells(_cells(), _vectors([*shapes, Point(*_at(5, 15))], ["a"] * 5))
    assert _found(found) == {(1, 0): "a"}
    assert found.left_out == {
        "points on cells without data": 1, "points outside of the raster": 1, "polygons outside of the raster": 1,
        "lines outside of the raster": 1,
    }  # fmt: skip


def test_coordinates_are_transformed_and_missing_ones_refused():
    from pyproj import Transformer

    degrees = Transformer.from_crs("EPSG:32632", "OGC:CRS84", always_xy=True).transform(*_at(35, 25))
    found = label_cells(_cells(), _vectors([Point(*degrees)], ["Müll"], "OGC:CRS84"))
    assert _found(found) == {(2, 3): "Müll"}
    with pytest.raises(DataError, match="no coordinate system"):
        label_cells(_cells(), _vectors([Point(0, 0)], ["a"], None))
    with pytest.raises(DataError, match=r"the raster scene\.tif has none"):
        label_cells(_cells(crs=None), _vectors([Point(0, 0)], ["a"]))


def test_classes_are_those_of_all_files_and_no_identifiers():
    one, two = _vectors([Point(0, 0)] * 2, ["b", None]), _vectors([Point(0, 0)], ["a"])
    assert classes_in([one, two], "class") == ("a", "b")
    with pytest.raises(DataError, match="no feature of"):
        classes_in([_vectors([Point(0, 0)], [None])], "class")
    with pytest.raises(DataError, match=r"1,001 different values"):
        classes_in([_vectors([Point(0, 0)] * 1001, [str(n) for n in range(1001)])], "class")
    with pytest.raises(DataError, match="control characters"):
        classes_in([_vectors([Point(0, 0)], ["a\nb"])], "class")
    assert label_cells(_cells(), one, "class", ("a", "b", "c")).classes == ("a", "b", "c")


def test_a_name_that_looks_the_same_is_the_same_class():
    """Files of a Mac have letters and their accents apart; no eye sees that, nor a second space."""
    shapes = [Point(*_at(5 + 10 * n, 15)) for n in range(5)]
    vectors = _vectors(shapes, ["Wu\u0308ste", "W\u00fcste", "dry  land", "dry\u00a0land", " "])
    assert classes_in([vectors], "class") == ("W\u00fcste", "dry land")
    found = label_cells(_cells(), vectors)
    assert found.counts == {"W\u00fcste": 2, "dry land": 2}
    assert found.left_out == {"features without a class": 1}


def test_why_nothing_is_labelled_is_one_sentence():
    vectors = _vectors([Point(*_at(5, 5))], ["a"])
    found = label_cells(_cells(), vectors)
    assert str(none_labelled([vectors], ["a/scene.tif"], [found])) == (
        "labels.gpkg labels no cell of scene.tif: 1 points on cells without data"
    )


def test_cells_of_an_index_have_its_place(tmp_path):
    from mgcap.geo.index import create_index

    plan = plan_of(9, 8)
    index = create_index(tmp_path / "scene.zarr", about_of(plan), 5)
    for chunk in range(plan.chunks):
        index.write(chunk, cells_of(plan, chunk))
    cells = cells_of_index(index)
    assert (cells.numbers < 0).sum() == np.ceil(72 / 3)
    assert shapely.bounds(shapely.points(cells.to_pixels(np.array([[25.0, -35.0]])))).tolist()[0][:2] == [25, 35]
