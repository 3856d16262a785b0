from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyogrio
import pytest
import rasterio
import shapely
from pyproj import Geod
from rasterio.transform import Affine

from mgcap.geo import dissolve
from mgcap.geo.cells import Place, cell_areas, cell_corners
from mgcap.geo.dissolve import patches
from mgcap.geo.grid import Grid
from mgcap.geo.polygons import write_polygons
from mgcap.geo.votes import ClassMap

GRID = Grid(395, 289, 10, 10)  # 40 columns, 29 rows; the last ones are smaller
LABELS = ["storagetanks", "b", "c"]
SQUARE, ROTATED = (0.5, 0, 500_000, 0, -0.5, 5_600_000), (0.3, 0.4, 500_000.1, 0.4, -0.3, 5_600_000.7)


def _place(crs: str | None, *transform: float) -> Place:
    known = None if crs is None else rasterio.CRS.from_string(crs)
    return Place(Affine(*transform), known, datetime.datetime(2024, 5, 1, tzinfo=datetime.UTC))


@pytest.fixture
def found(rng: np.random.Generator) -> ClassMap:
    """Patches of three classes, some with holes, unknown cells and some without data."""
    p = rng.dirichlet([1, 1, 1], (GRID.rows, GRID.columns)).astype(np.float32)
    for axis in (0, 1):
        p = (p + np.roll(p, 1, axis) + np.roll(p, -1, axis)) / 3
    classes = p.argmax(-1).astype(np.int16)
    classes[rng.random(classes.shape) < 0.1] = 3  # unknown
    classes[5:9, 5:20] = -1
    classes[20:25, 20:25], classes[22, 22] = 1, 0  # a hole
    p[classes < 0] = np.nan
    return ClassMap(p, classes, np.zeros(classes.shape, np.float32))


def _flooded(classes: Any) -> Any:
    """Patches by flooding from each cell."""
    numbers = np.zeros(classes.shape, int)
    for start in np.argwhere(classes >= 0):
        if numbers[tuple(start)]:
            continue
        number, left = numbers.max() + 1, [tuple(start)]
        while left:
            y, x = left.pop()
            if (
                0 <= y < classes.shape[0]
                and 0 <= x < classes.shape[1]
                and not numbers[y, x]
                and classes[y, x] == classes[tuple(start)]
            ):
                numbers[y, x] = number
                left += [(y + 1, x), (y - 1, x), (y, x + 1), (y, x - 1)]
    return numbers


def test_patches_are_cells_that_share_edges(found: ClassMap) -> None:
    numbers, count = patches(found.classes)
    flooded = _flooded(found.classes)
    assert count == flooded.max() == len({*zip(numbers.ravel(), flooded.ravel(), strict=True)} - {(0, 0)})
    assert ((numbers == 0) == (found.classes < 0)).all()


def _written(path: Path, place: Place, found: ClassMap, layer: str | None = "classes") -> Any:
    files = write_polygons(path, found, GRID, place, [*LABELS, "unknown"], dissolve=True)
    file = [file for file in files if file.suffix == path.suffix][-1]
    meta, _, geometry, fields = pyogrio.raw.read(file, layer=layer)
    return shapely.from_wkb(geometry), dict(zip(meta["fields"], fields, strict=True))


def _cells(place: Place, found: ClassMap) -> Any:
    cells = np.argwhere(found.classes >= 0)
    return cells, shapely.polygons(cell_corners(GRID, place, cells))


@pytest.mark.parametrize("transform", [SQUARE, ROTATED])
@pytest.mark.parametrize("together", [20_000, 50])
def test_polygons_have_no_gaps_and_no_overlaps(
    tmp_path: Path, found: ClassMap, transform: Any, together: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dissolve, "TOGETHER", together)
    place = _place("EPSG:25832", *transform)
    shapes, fields = _written(tmp_path / "map.gpkg", place, found)
    assert len(shapes) == _flooded(found.classes).max()
    assert shapely.is_valid(shapes).all()
    assert shapely.coverage_is_valid(shapes)  # edges of neighbours match in every point
    cells, own = _cells(place, found)
    tree = shapely.STRtree(shapes)
    cell, patch = tree.query(shapely.centroid(own), predicate="within")
    assert cell.tolist() == sorted(cell.tolist()) == list(range(len(cells)))  # each is in one patch
    names = np.array(["storage tanks", "b", "c", "unknown"])
    classes = found.classes[tuple(cells.T)]
    assert (fields["class"][patch] == names[classes]).all()
    assert (fields["label"][patch] == np.array([*LABELS, "unknown"])[classes]).all()
    assert fields["cells"].tolist() == np.bincount(patch).tolist()
    assert np.allclose(fields["area_m2"], np.bincount(patch, cell_areas(GRID, place, cells)), atol=0.006)
    assert np.allclose(shapely.area(shapes), np.bincount(patch, shapely.area(own)), rtol=1e-6)
    known = classes < 3
    p = np.where(known, found.probabilities[tuple(cells.T)][range(len(cells)), classes.clip(max=2)], np.nan)
    assert np.allclose(fields["probability"], np.bincount(patch, p) / np.bincount(patch), atol=1e-4, equal_nan=True)
    assert shapely.get_num_interior_rings(shapes).max() > 0


def test_a_large_patch_has_few_corners(tmp_path: Path) -> None:
    classes = np.zeros((GRID.rows, GRID.columns), np.int16)
    classes[10:, :7] = 1
    one = ClassMap(np.full((*classes.shape, 3), 1 / 3, np.float32), classes, np.zeros(classes.shape, np.float32))
    shapes, fields = _written(tmp_path / "map.gpkg", _place("EPSG:25832", *ROTATED), one)
    assert fields["cells"].tolist() == [40 * 29 - 19 * 7, 19 * 7]
    assert shapely.get_num_coordinates(shapes).tolist() == [7, 5]


@pytest.mark.parametrize(
    ("crs", "transform"),
    [
        ("EPSG:25832", ROTATED),
        ("EPSG:3832", (5, 0, 3_339_584 - 905, 0, -5, -1_800_000)),  # across the antimeridian
        ("EPSG:4326", (0.002, 0, 179.7, 0, -0.002, 50)),
        ("EPSG:3413", (20, 0, -3_950, 0, -20, 2_890)),  # the pole inside
    ],
)
def test_degrees_are_those_of_the_cells(tmp_path: Path, found: ClassMap, crs: str, transform: Any) -> None:
    place = _place(crs, *transform)
    features = json.loads(
        write_polygons(tmp_path / "map.geojson", found, GRID, place, [*LABELS, "unknown"], dissolve=True)[1].read_text()
    )["features"]
    shapes = np.array([shapely.from_geojson(json.dumps(feature["geometry"])) for feature in features])
    assert len(shapes) == _flooded(found.classes).max()
    assert shapely.is_valid(shapes).all()
    assert np.abs(shapely.get_coordinates(shapes)).max(0).tolist() <= [180, 90]
    outer = [part.exterior for part in shapely.get_parts(shapes)]
    assert all(ring.is_ccw for ring in outer)
    cells = json.loads((tmp_path / "map.geojson").read_text())["features"]
    inner = [shapely.from_geojson(json.dumps(cell["geometry"])) for cell in cells]
    _, patch = shapely.STRtree(shapes).query(shapely.point_on_surface(inner), predicate="within")
    assert len(patch) == len(cells)
    for key in ("class", "label"):
        assert [features[k]["properties"][key] for k in patch] == [cell["properties"][key] for cell in cells]
    shared = shapely.STRtree(shapes).query(shapes, predicate="overlaps")
    assert shapely.area(shapely.intersection(*shapes[shared])).sum() < 1e-6 * shapely.area(shapes).sum()
    geod = Geod(ellps="WGS84")
    for feature, shape in zip(features, shapes, strict=True):
        if crs == "EPSG:25832":  # elsewhere edges are long enough to be bent
            area = abs(geod.geometry_area_perimeter(shape)[0])
            assert area == pytest.approx(feature["properties"]["area_m2"], rel=1e-3)  # of 5 m, written to a millimetre
    assert sum(f["properties"]["cells"] for f in features) == (found.classes >= 0).sum()
    assert all(f["properties"]["probability"] is None for f in features if f["properties"]["class"] == "unknown")


def test_without_a_place_polygons_keep_pixels(tmp_path: Path, found: ClassMap) -> None:
    place = _place(None, 1, 0, 0, 0, 1, 0)
    cells, patched, *_ = write_polygons(tmp_path / "a.json", found, GRID, place, [*LABELS, "unknown"], dissolve=True)
    assert patched.name == "a.classes.json"
    features = json.loads(patched.read_text())["features"]
    shapes = [shapely.from_geojson(json.dumps(feature["geometry"])) for feature in features]
    assert shapely.area(shapes).tolist() == [feature["properties"]["area_units2"] for feature in features]
    assert len(json.loads(cells.read_text())["features"]) == (found.classes >= 0).sum()


def test_a_parquet_file_has_the_same_polygons(tmp_path: Path, found: ClassMap) -> None:
    geopandas = pytest.importorskip("geopandas")
    place = _place("EPSG:25832", *SQUARE)
    shapes, fields = _written(tmp_path / "map.gpkg", place, found)
    files = write_polygons(tmp_path / "map.parquet", found, GRID, place, [*LABELS, "unknown"], dissolve=True)
    assert [file.name for file in files[:2]] == ["map.parquet", "map.classes.parquet"]
    assert {file.name for file in files[2:]} == {"map.qml", "map.sld", "map.classes.qml", "map.classes.sld"}
    table = geopandas.read_parquet(files[1])
    assert shapely.equals_exact(table.geometry.values, shapes).all()
    assert table["class"].tolist() == fields["class"].tolist()
    assert {path.name for path in tmp_path.iterdir()} == {
        "map.gpkg", "map.parquet", "map.classes.parquet", "map.qml", "map.sld", "map.classes.qml", "map.classes.sld",
    }  # fmt: skip
