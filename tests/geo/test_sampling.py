from __future__ import annotations

from pathlib import Path
from typing import Any

import geopandas
import numpy as np
import pytest
import rasterio

from mgcap.errors import DataError, RasterError
from mgcap.evaluation.assessment import estimate_stratified
from mgcap.geo.cellmap import read_cells
from mgcap.geo.sampling import draw_points, write_points
from tests.geo.maps import write_map

CLASSES = ("forest", "medium residential", "river", "beach", "unknown")


@pytest.fixture
def numbers(rng: np.random.Generator) -> Any:
    found = rng.choice([1, 1, 1, 1, 1, 2, 2, 5], (40, 50))
    found[:5, :5], found[20, 20:23] = 0, 3
    return found


@pytest.fixture
def path(numbers: Any, tmp_path: Path) -> Path:
    return write_map(tmp_path / "map.tif", numbers, CLASSES, size=(493, 396))


def test_points_lie_on_cells_of_their_class(path: Path, numbers: Any, tmp_path: Path) -> None:
    cells, out = read_cells(path), tmp_path / "points.gpkg"
    sample = draw_points(cells, total=200, seed=1)
    write_points(out, sample, cells)
    table = geopandas.read_file(out)
    assert list(table.columns) == ["id", "map_class", "area", "class", "geometry"]
    assert table["id"].tolist() == list(range(1, 201)) and table["class"].isna().all()
    assert table.crs.to_epsg() == 25832
    with rasterio.open(path) as dataset:
        below = [value[0] for value in dataset.sample(zip(table.geometry.x, table.geometry.y, strict=True))]
        left, top = dataset.bounds.left, dataset.bounds.top
    assert [CLASSES[value - 1] for value in below] == table["map_class"].tolist()
    assert table.geometry.x.between(left, left + 493).all() and table.geometry.y.between(top - 396, top).all()
    count = table["map_class"].value_counts()
    assert (count["river"], count.get("beach", 0)) == (3, 0) and count.sum() == 200
    assert count["forest"] > count["medium residential"] > count["unknown"] >= 25
    order = table["map_class"].to_numpy()
    assert (order[1:] == order[:-1]).mean() < 0.7  # not one class after the other
    assert table.groupby("map_class")["area"].sum()["river"] == pytest.approx(300, rel=2e-3)
    columns = ((table.geometry.x - left) // 10).astype(int)
    assert len(set(zip(columns, ((top - table.geometry.y) // 10).astype(int), strict=True))) == 200  # no cell twice


def test_the_same_seed_gives_the_same_bytes(path: Path, tmp_path: Path) -> None:
    cells = read_cells(path)
    contents = []
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        write_points(tmp_path / f"{name}.gpkg", draw_points(cells, 5, seed=seed), cells)
        contents.append((tmp_path / f"{name}.gpkg").read_bytes())
    assert contents[0] == contents[1] != contents[2]
    assert int.from_bytes(contents[0][60:64], "big") == 10200  # later versions make GDAL 3.6 warn


def test_numbers_of_points(path: Path) -> None:
    cells = read_cells(path)
    assert draw_points(cells).counts.tolist() == [50, 50, 3, 0, 50]
    assert draw_points(cells, 7).counts.tolist() == [7, 7, 3, 0, 7]
    assert (
        draw_points(cells, 10, 100).counts[[2, 4]].tolist() == [3, 12]
        or draw_points(cells, 10, 100).counts.sum() == 100
    )
    assert draw_points(cells, total=10_000).counts.sum() == (cells.numbers >= 0).sum()
    with pytest.raises(
        DataError, match="100 points are too few for 50 of each of 4 classes: `total` takes 153 or more"
    ):
        draw_points(cells, 50, 100)


def test_what_is_drawn_estimates_areas(path: Path, numbers: Any, rng: np.random.Generator) -> None:
    """The truth is known everywhere: the mean of the estimates is right, and intervals hold as often as they say."""
    truth = np.where(rng.random(numbers.shape) < 0.8, numbers, rng.integers(1, 4, numbers.shape))
    truth[truth == 5] = 2
    cells, estimates = read_cells(path), []
    high, wide = np.minimum(10, 396 - 10 * np.arange(40)), np.minimum(10, 493 - 10 * np.arange(50))
    area = high[:, None] * wide * (numbers > 0)
    real = area[truth == 1].sum() / area.sum()
    for seed in range(200):
        sample = draw_points(cells, total=160, seed=seed)
        rows, columns = ((5_600_000, -500_000) + sample.points[:, ::-1] * (-1, 1)).T // 10
        found = truth[rows.astype(int), columns.astype(int)] - 1
        done = estimate_stratified(sample.strata, found, sample.strata, sample.areas, 5).areas[0]
        assert done is not None
        estimates.append((done.value, done.low, done.high))
    value, low, upper = np.array(estimates).T / sample.areas.sum()
    assert value.mean() == pytest.approx(real, abs=3 * value.std() / np.sqrt(200))
    assert 0.90 <= ((low <= real) & (real <= upper)).mean() <= 0.99


def test_nothing_to_draw_from(tmp_path: Path) -> None:
    with pytest.raises(RasterError, match="has no cell with data"):
        draw_points(read_cells(write_map(tmp_path / "map.tif", [[0, 0]])))
    cells = read_cells(write_map(tmp_path / "map.tif", [[1, 0]]))
    with pytest.raises(RasterError, match=r"`out` takes a \.gpkg file"):
        write_points(tmp_path / "points.shp", draw_points(cells), cells)
