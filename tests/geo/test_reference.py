from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import geopandas
import numpy as np
import pytest
import rasterio
import shapely
from rasterio.transform import Affine

from mgcap.errors import DataError, RasterError
from mgcap.geo.cellmap import read_cells
from mgcap.geo.joining import join
from mgcap.geo.reference import assess, check_reference
from mgcap.geo.vectors import Vectors, read_vectors
from tests.geo.maps import PLACE, ground, write_map

CELLS = [[1, 1, 2, 2], [1, 3, 2, 0], [3, 3, 4, 4]]
CLASSES = ("forest", "medium residential", "river", "unknown")


@pytest.fixture
def mapped(tmp_path: Path) -> Path:
    return write_map(tmp_path / "map.tif", CELLS, CLASSES)


def _table(path: Path, shapes: Any, crs: Any = "EPSG:25832", **columns: Any) -> Path:
    geopandas.GeoDataFrame(columns, geometry=shapes, crs=crs).to_file(path)
    return path


def _middle(row: int, column: int) -> Any:
    return shapely.Point(*ground(PLACE, column + 0.5, row + 0.5))


def _points(tmp_path: Path, found: dict[tuple[int, int], str | None], **columns: Any) -> Path:
    shapes = [_middle(*cell) for cell in found]
    return _table(tmp_path / "truth.gpkg", shapes, **{"class": list(found.values()), **columns})


def test_points_take_the_cell_below(mapped: Path, tmp_path: Path) -> None:
    found = {
        (0, 0): "Forest", (0, 1): "river", (0, 2): "medium_residential", (0, 3): "MediumResidential",
        (1, 0): None, (1, 3): "forest", (2, 0): "river", (2, 2): "forest", (9, 9): "forest",
    }  # fmt: skip
    done = assess(mapped, _points(tmp_path, found))
    assert done.summary["classes"] == list(CLASSES)
    assert done.summary["confusion"] == [[1, 0, 1, 0], [0, 2, 0, 0], [0, 0, 1, 0], [1, 0, 0, 0]]
    assert done.summary["left_out"] == {
        "features without a class": 1, "points outside of the map": 1, "points on cells without data": 1
    }  # fmt: skip
    assert done.counted.overall.value == 4 / 6
    assert done.counted.known is not None and done.counted.known.value == 4 / 5
    assert done.stratified is None and "`design=random` if the points are" in " ".join(done.summary["notes"])
    assert done.summary["mapped_areas"] == pytest.approx([300, 300, 300, 200], rel=2e-3)  # the scale is 0.9996


def test_files_say_the_same(mapped: Path, tmp_path: Path) -> None:
    done = assess(mapped, _points(tmp_path, {(0, 0): "forest", (0, 1): "river"}), command="mgcap map <scene>")
    page, whole, table, confusion = done.files
    assert [path.name for path in done.files] == [
        f"map.{kind}" for kind in ("assessment.html", "assessment.json", "assessment.csv", "confusion.csv")
    ]
    assert json.loads(whole.read_text()) == done.summary
    rows = {row["class"]: row for row in csv.DictReader(table.open())}
    assert (rows["forest"]["in_map"], rows["forest"]["right"], rows["all"]["counts_users"]) == ("2", "1", "0.500000")
    assert [row["river"] for row in csv.DictReader(confusion.open())] == ["1", "0", "0", "0"]
    assert "50.0 %" in page.read_text() and "mgcap map &lt;scene&gt;" in page.read_text()
    before = [path.read_bytes() for path in done.files]
    assess(mapped, tmp_path / "truth.gpkg", command="mgcap map <scene>")
    assert [path.read_bytes() for path in done.files] == before


def _rectangle(left: float, top: float, right: float, lower: float) -> Any:
    """A rectangle by cells from the upper left corner."""
    return shapely.Polygon(
        [ground(PLACE, *corner) for corner in ((left, top), (right, top), (right, lower), (left, lower))]
    )


def test_polygons_take_the_cells_that_they_cover_by_half(mapped: Path, tmp_path: Path) -> None:
    shapes = [
        _rectangle(0, 0, 2, 0.6),  # two cells of forest, and 60 % of each
        _rectangle(2, 0, 2.4, 1),  # 40 %, and another 30 % of the same class
        _rectangle(2.5, 0, 2.8, 1),
        _rectangle(3, 0, 3.45, 1),  # 45 % each of two classes: mixed
        _rectangle(3.5, 0, 3.95, 1),
        _rectangle(0, 2, 1, 3),  # river, and contradicted
        _rectangle(0.2, 2, 1, 3),
        _rectangle(3, 1, 4, 2),  # no data
        _rectangle(50, 50, 51, 51),
    ]
    truth = ["forest", "river", "river", "river", "forest", "river", "forest", "forest", "forest"]
    done = assess(mapped, _table(tmp_path / "truth.geojson", shapes, **{"class": truth}))
    assert done.summary["units"] == "cells"
    assert done.summary["confusion"] == [[2, 0, 0, 0], [0, 0, 1, 0], [0, 0, 0, 0], [0, 0, 0, 0]]
    assert done.summary["left_out"] == {
        "polygons outside of the map": 1,
        "cells that no class covers by more than half": 1,
        "cells that polygons of several classes cover": 1,
        "polygons' cells without data": 1,
    }


def test_cells_of_polygons_on_a_grid_that_lies_askew(tmp_path: Path, rng: np.random.Generator) -> None:
    """Compared with each cell's own outline on the ground; those at the edge are cut."""
    place = Affine(8, 3, 500_000, 2, -9, 5_600_000)
    path = write_map(tmp_path / "map.tif", rng.integers(1, 4, (20, 30)), size=(296, 193), transform=place)
    centres, classes = rng.uniform((0, 0), (30, 20), (12, 2)), rng.integers(0, 3, 12)
    shapes = [shapely.Point(*ground(place, *c)).buffer(r) for c, r in zip(centres, rng.uniform(5, 60, 12), strict=True)]
    vectors = Vectors("truth", np.array(shapes, object), {}, None)
    cells = read_cells(path)
    found = join(cells, vectors, classes)
    expected = {}
    for row in range(20):
        for column in range(30):
            right, lower = min(column + 1, 29.6), min(row + 1, 19.3)
            corners = ((column, row), (right, row), (right, lower), (column, lower))
            cell = shapely.Polygon([ground(place, *corner) for corner in corners])
            share = [
                shapely.union_all([s for s, own in zip(shapes, classes, strict=True) if own == k])
                .intersection(cell)
                .area
                / cell.area
                for k in range(3)
            ]
            if sum(part > 0.5 for part in share) == 1:
                expected[row, column] = int(np.argmax(share))
    assert len(expected) > 40
    assert dict(zip(map(tuple, found.cells.tolist()), found.truth.tolist(), strict=True)) == expected


def test_a_stratified_sample_gives_areas(mapped: Path, tmp_path: Path) -> None:
    found = {(0, 0): "forest", (1, 0): "river", (0, 2): "river", (0, 3): "medium residential", (2, 0): "river"}
    strata = ["forest", "Forest", "mediumresidential", "medium residential", "river"]
    done = assess(mapped, _points(tmp_path, found, map_class=strata))
    assert done.summary["design"] == "stratified" and done.stratified is not None
    assert done.stratified.overall.value == pytest.approx((0.5 + 0.5 + 1) / 3)
    assert [a.value for a in done.stratified.areas if a] == pytest.approx([150, 150, 600], rel=2e-3)
    notes = " ".join(done.summary["notes"])
    assert "not part of the estimates: unknown (18.18 % of the area)" in notes
    assert "With one point, so that standard errors do not count how it varies: river" in notes
    assert assess(mapped, tmp_path / "truth.gpkg", design="other").stratified is None
    again = assess(mapped, tmp_path / "truth.gpkg", design="random").stratified
    assert again is not None and again.overall == done.stratified.overall


def test_a_sample_of_another_map_needs_its_areas(mapped: Path, tmp_path: Path) -> None:
    found = {(0, 0): "forest", (1, 0): "river", (0, 2): "river", (0, 3): "medium residential"}
    strata = ["dark", "dark", "dark", "bright"]
    path = _points(tmp_path, found, map_class=strata)
    with pytest.raises(DataError, match=r"4 points of truth\.gpkg were drawn from another map"):
        assess(mapped, path)
    done = assess(mapped, _points(tmp_path, found, map_class=strata, area=[200.0, 200, 200, 400])).stratified
    assert done is not None and done.total == 1000
    assert done.overall.value == pytest.approx(0.6 / 3 + 0.4)


def test_names_that_differ(mapped: Path, tmp_path: Path) -> None:
    found = {(0, 0): "Wald", (0, 1): "woods", (0, 2): "cemetery", (2, 0): "3"}
    points, names = _points(tmp_path, found), tmp_path / "names.csv"
    names.write_text("reference;map\nWALD;forest\nWoods;Forest\ncemetery;\n3;river\n")
    done = assess(mapped, points, names=names)
    assert done.summary["classes"] == [*CLASSES, "cemetery"]
    assert done.counted.overall.value == 3 / 4
    names.write_text("reference,map\nwald,forst\n")
    with pytest.raises(DataError, match=r"maps 'Wald' to 'forst', which the map has not \(did you mean 'forest'\?\)"):
        assess(mapped, points, names=names)
    names.write_text("reference,map\nwald,forest\nWald,\n")
    with pytest.raises(DataError, match="both that the map has 'Wald' and that it has not"):
        assess(mapped, points, names=names)
    names.write_text("from,to\nwald,forest\n")
    with pytest.raises(DataError, match="must have the columns reference and map"):
        assess(mapped, points, names=names)


def test_classes_that_are_one_in_the_reference_are_compared_as_one(mapped: Path, tmp_path: Path) -> None:
    """By hand: forest and housing are what the reference calls green."""
    found = {(0, 0): "Green", (0, 2): "green", (1, 0): "forest", (1, 1): "river", (2, 0): "Green"}
    strata = ["forest", "medium residential", "forest", "river", "river"]
    points, names = _points(tmp_path, found, map_class=strata), tmp_path / "names.csv"
    names.write_text("reference,map\nGreen,forest\ngreen,medium_residential\ngreen,Forest\n")
    done = assess(mapped, points, names=names)
    assert done.summary["classes"] == ["Green", "river", "unknown"]
    assert done.summary["confusion"] == [[3, 0, 0], [1, 1, 0], [0, 0, 0]]
    plain = assess(mapped, _points(tmp_path, found | dict.fromkeys([(0, 0), (2, 0)], "forest") | {(0, 2): "forest"},
                                   map_class=strata))  # fmt: skip
    assert done.summary["mapped_areas"][0] == pytest.approx(sum(plain.summary["mapped_areas"][:2]))
    assert done.summary["mapped_areas"][1:] == plain.summary["mapped_areas"][2:]
    assert done.stratified is not None and plain.stratified is not None
    assert done.stratified.total == pytest.approx(plain.stratified.total)  # strata are those of the map as it was
    for text, words in (
        ("Green,forest\nGreen,lava", "maps 'Green' to 'lava', which the map has not"),
        ("Green,forest\nGreen,river\nWet,river\nWet,medium residential", "merges 'river' into both 'Green' and 'Wet'"),
        ("River,forest\nRiver,medium residential", "merges classes into 'River', which is another class of the map"),
    ):
        names.write_text(f"reference,map\n{text}\n")
        with pytest.raises(DataError, match=words):
            check_reference(points, "class", CLASSES[:3], names)


def test_names_without_a_match_are_all_said(mapped: Path, tmp_path: Path) -> None:
    path = _points(tmp_path, {(0, 0): "Forrest", (0, 1): "lava", (0, 2): "river", (0, 3): "unknown"})
    said = r"truth.gpkg has names .* 'Forrest' \(did you mean 'forest'\?\), 'lava', 'unknown'; .* `names`"
    with pytest.raises(DataError, match=said):
        assess(mapped, path)
    with pytest.raises(DataError, match=said):
        check_reference(path, "class", CLASSES[:3])


def test_what_cannot_be_compared(mapped: Path, tmp_path: Path) -> None:
    def told(shapes: Any, crs: Any = "EPSG:25832", field: str = "class", **options: Any) -> str:
        path = _table(tmp_path / "truth.gpkg", shapes, crs, **{"class": ["forest"] * len(shapes)})
        with pytest.raises(DataError) as error:
            assess(mapped, path, field, **options)
        path.unlink()
        return str(error.value)

    here, tiny = _middle(0, 0), _rectangle(0, 0, 0.4, 1)
    assert "nothing of truth.gpkg (x 9 to 9" in told([shapely.Point(9, 9)])
    assert "(x 500000 to 500040, y 5599970 to 5600000)" in told([shapely.Point(9, 9)])
    assert "lies on map.tif" in told([shapely.Point(-100, 80)], "EPSG:4326")
    assert "has no data (1 points)" in told([_middle(1, 3)])
    assert "covers a cell of map.tif by more than half (1 are touched)" in told([tiny])
    assert "lies on map.tif" in told([_rectangle(50, 50, 51, 51)])
    assert "must have points or polygons, not both or lines" in told([here, tiny])
    assert "not both or lines" in told([shapely.LineString([(0, 0), (1, 1)])])
    assert "no feature of truth.gpkg has a geometry" in told([None])
    assert "no field 'clas' (did you mean 'class'?)" in told([here], field="clas")
    assert "has no coordinate system" in told([here], None)
    assert "`design` takes" in told([here], design="randon")
    assert "needs the stratum of each point" in told([here], design="stratified")
    assert "is for points" in told([tiny], design="random")
    with pytest.raises(DataError, match=r"the field 'class' of truth\.gpkg is empty"):
        assess(mapped, _points(tmp_path, {(0, 0): None}))
    assert not list(tmp_path.glob("*.assessment.*"))


def test_what_is_no_map(tmp_path: Path, write_raster: Any) -> None:
    with pytest.raises(RasterError, match="there is no map"):
        read_cells(tmp_path / "none.gpkg")
    (tmp_path / "alone.gpkg").write_text("x")
    with pytest.raises(RasterError, match=r"has no class raster alone\.tif beside it"):
        read_cells(tmp_path / "alone.gpkg")
    with pytest.raises(RasterError, match="not the class raster of a map"):
        read_cells(write_raster(np.zeros((3, 64, 64), np.uint8)))
    with pytest.raises(RasterError, match="is damaged"):
        read_cells(write_map(tmp_path / "map.tif", [[9]]))
    with pytest.raises(RasterError, match="is damaged"):
        read_cells(write_map(tmp_path / "map.tif", CELLS, CLASSES, size=(100, 100)))


def test_a_map_without_a_place(tmp_path: Path) -> None:
    path = write_map(tmp_path / "map.tif", CELLS, CLASSES, crs=None, transform=Affine(10, 0, 0, 0, 10, 0))
    truth = tmp_path / "truth.csv"
    truth.write_text("x,y,class\n5,5,forest\n15,15,river\n40,30,river\n")
    done = assess(path, truth, design="random")
    assert done.summary["confusion"][3][2] == 1 and done.summary["compared"] == 3  # the corner belongs to the last cell
    assert done.summary["mapped_areas"] == [300, 300, 300, 200] and done.summary["area_unit"] == "units2"


def test_maps_across_the_antimeridian_and_in_degrees(tmp_path: Path) -> None:
    crs = rasterio.crs.CRS.from_epsg(32701)  # its zone begins at 180 degrees
    path = write_map(tmp_path / "map.tif", CELLS, CLASSES, crs=crs, transform=Affine(1e4, 0, 166_000, 0, -1e4, 8e6))
    west = geopandas.GeoSeries([shapely.Point(171_000, 7_995_000)], crs=crs).to_crs(4326)[0]
    assert west.x > 179 or west.x < -179
    truth = tmp_path / "truth.csv"
    truth.write_text(f"lon,lat,class\n{west.x!r},{west.y!r},forest\n")
    assert assess(path, truth).counted.overall.value == 1
    assert len(read_vectors(truth, ["class"])) == 1
