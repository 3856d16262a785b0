from __future__ import annotations

import csv
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
import torch
import zarr
from PIL import Image
from rasterio.transform import Affine

from mgcap.classifier import SceneClassifier
from mgcap.geo import shift as module
from mgcap.geo.cells import Place
from mgcap.geo.index import open_index
from mgcap.geo.mapping import Mapped, map_raster
from mgcap.geo.plan import Plan
from mgcap.geo.shift import GROUPS, NEAREST, Shift, find_shift
from mgcap.geo.votes import ClassMap
from mgcap.inference.sample import Sketch
from mgcap.inference.unknown import Limits
from tests.geo.maps import ground

PLACE = Affine(0.3, 0.4, 500_000, 0.4, -0.3, 5_600_000)  # half a metre, rotated
ALPHA = 0.01


@pytest.fixture(scope="module")
def classifier(model_file: Path) -> SceneClassifier:
    """One that was confident of held-out images, so that cells are unknown for either reason."""
    model = SceneClassifier.load(model_file, engine="torch")
    model.metrics_ = {"held_out_confidence_percentiles": [0.999] * 101}
    return model


@pytest.fixture(scope="module")
def raster(scenes: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Scenes and noise side by side, 16 x 12 cells, some of which have no data."""
    files = sorted(scenes.glob("*/*1.png"))[:4]
    rows = [np.concatenate([np.asarray(Image.open(file)) for file in files[k:] + files[:k]], 1) for k in range(3)]
    pixels = np.moveaxis(np.concatenate(rows), -1, 0).copy()
    pixels[:, 100:150, 60:190] = np.random.default_rng(0).integers(1, 256, (3, 50, 130))
    pixels[:, :60, :90] = 0
    path = tmp_path_factory.mktemp("shift") / "scene.tif"
    given = {"driver": "GTiff", "count": 3, "height": 192, "width": 256, "dtype": "uint8", "nodata": 0}
    with rasterio.open(path, "w", **given, crs="EPSG:25832", transform=PLACE) as dataset:
        dataset.write(pixels)
    return path


@pytest.fixture(scope="module")
def done(classifier: SceneClassifier, model_file: Path, raster: Path) -> Mapped:
    return map_raster(classifier, model_file, raster, raster.with_name("map.gpkg"), unknown=ALPHA)


def _layers(out: Path) -> tuple[Any, Any, float]:
    """The class of each cell, its distance, and where the unknown begins, as the files say it."""
    with rasterio.open(out.with_suffix(".tif")) as dataset:
        numbers = dataset.read(1)
    with rasterio.open(out.with_suffix(".distance.tif")) as dataset:
        return numbers, dataset.read(1), float(dataset.tags()["LIMIT"])


def test_shares_are_counted_in_the_rasters_of_the_map(done: Mapped, classifier: SceneClassifier) -> None:
    numbers, distance, limit = _layers(done.files[0])
    assert limit == pytest.approx(classifier.limits(ALPHA).distance, rel=1e-4)
    unknown, far = numbers == len(done.classes), distance > limit
    assert done.classes[-1] == "unknown" and (numbers == 0).any() and not (far & ~unknown).any()
    shift, total = done.shift, (numbers > 0).sum()
    assert shift is not None and far.any() and (unknown & ~far).any()
    found = (shift.known, shift.far, shift.unsure)
    assert min(found) > 0
    assert found == pytest.approx([n.sum() / total for n in ((numbers > 0) & ~unknown, far, unknown & ~far)])
    assert shift.sentence == (
        f"{100 * found[0]:.1f} % of the cells are like the training data; unknown: {100 * found[1]:.1f} % is far "
        f"from it, {100 * found[2]:.1f} % is near, but the model is not confident"
    )


def test_typical_cells_stand_for_all_that_are_unknown(done: Mapped) -> None:
    numbers, distance, _ = _layers(done.files[0])
    shift = done.shift
    assert shift is not None and 2 <= len(shift.typical) <= GROUPS
    shares = [cell.share for cell in shift.typical]
    assert shares == sorted(shares, reverse=True) and sum(shares) == pytest.approx(shift.far + shift.unsure)
    assert all(share * (numbers > 0).sum() == pytest.approx(round(share * (numbers > 0).sum())) for share in shares)
    assert len({(cell.row, cell.column) for cell in shift.typical}) == len(shift.typical)
    for cell in shift.typical:
        assert numbers[cell.row, cell.column] == len(done.classes)
        assert cell.distance == pytest.approx(distance[cell.row, cell.column], abs=1e-4)
        assert (cell.x, cell.y) == pytest.approx(ground(PLACE, 16 * cell.column + 8, 16 * cell.row + 8))


def _to_images(index: Any, row: int, column: int, classifier: SceneClassifier) -> Any:
    """How far a cell is from each of the sample, in double precision."""
    sample = classifier.sample_
    assert sample is not None
    store: Any = zarr.open_group(index, mode="r")
    vector = torch.from_numpy(store["vectors"][row, column][None]).float()
    own = (Sketch(vector.shape[1])(vector)[0] - sample.mean).double().numpy()
    kept = sample.vectors.double().numpy()
    return 1 - kept @ own / (np.linalg.norm(kept, axis=1) * np.linalg.norm(own))


def test_the_nearest_training_images_are_beside_them(done: Mapped, classifier: SceneClassifier, raster: Path) -> None:
    assert done.shift is not None and classifier.sample_ is not None
    for cell in done.shift.typical:
        apart = _to_images(raster.with_suffix(".zarr"), cell.row, cell.column, classifier)
        assert [number for number, _ in cell.nearest] == np.argsort(apart, kind="stable")[:NEAREST].tolist()
        assert [distance for _, distance in cell.nearest] == pytest.approx(np.sort(apart)[:NEAREST], abs=1e-4)
        labels = [classifier.classes_[classifier.sample_.targets[number]] for number, _ in cell.nearest]
        assert list(cell.classes) == [label.replace("_", " ") for label in labels]


def test_the_table_and_the_picture(done: Mapped) -> None:
    table, picture = (done.files[0].with_suffix(f".unknown.{kind}") for kind in ("csv", "png"))
    assert {table, picture} <= set(done.files) and done.shift is not None
    with table.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["rank"]) for row in rows] == list(range(1, len(done.shift.typical) + 1))
    for row, cell in zip(rows, done.shift.typical, strict=True):
        assert (int(row["row"]), int(row["column"])) == (cell.row, cell.column)
        assert (float(row["x"]), float(row["y"])) == pytest.approx((cell.x, cell.y))
        assert float(row["share"]) == pytest.approx(cell.share, abs=1e-6)
        assert row["nearest"].count("; ") == NEAREST - 1 and row["nearest"].startswith(cell.classes[0])
        assert cell.texts()[:2] == (row["row"], row["column"])
    with Image.open(picture) as image:
        assert image.height > 200 * len(rows) and len(np.unique(np.asarray(image.convert("RGB")))) > 50


def test_what_a_map_without_doubt_says(
    classifier: SceneClassifier, model_file: Path, raster: Path, tmp_path: Path
) -> None:
    """No shift where nothing may be unknown; shares alone where there is no index."""
    plain = map_raster(classifier, model_file, raster, tmp_path / "plain.gpkg", unknown=0)
    assert plain.shift is None and not list(tmp_path.glob("*.unknown.*")) and "unknown" not in plain.classes
    exact = map_raster(classifier, model_file, raster, tmp_path / "exact.gpkg", unknown=ALPHA, exact=True)
    numbers, distance, limit = _layers(exact.files[0])
    assert exact.shift is not None and exact.shift.typical == []
    assert exact.shift.far == pytest.approx((distance > limit).sum() / (numbers > 0).sum())


def test_a_coarser_map_of_the_index_has_typical_cells_of_its_own(
    done: Mapped, classifier: SceneClassifier, model_file: Path, raster: Path, tmp_path: Path
) -> None:
    options = {"cells": 2, "unknown": ALPHA, "index": raster.with_suffix(".zarr")}
    coarse = map_raster(classifier, model_file, raster, tmp_path / "coarse.gpkg", **options)
    numbers, _, _ = _layers(coarse.files[0])
    assert numbers.shape == (6, 8) and coarse.shift is not None and coarse.shift.typical
    _, fine, _ = _layers(done.files[0])
    for cell in coarse.shift.typical:
        assert cell.distance == pytest.approx(fine[2 * cell.row + 1, 2 * cell.column + 1], abs=1e-4)
        assert numbers[cell.row, cell.column] == len(coarse.classes)
        assert (cell.x, cell.y) == pytest.approx(ground(PLACE, 32 * cell.column + 16, 32 * cell.row + 16))


def _again(done: Mapped, classifier: SceneClassifier, raster: Path) -> Shift:
    index = open_index(raster.with_suffix(".zarr"))
    return find_shift(classifier, done.found, done.plan, Place(PLACE, "EPSG:25832", done.plan), index)  # type: ignore[arg-type]


def test_windows_of_composed_scenes_are_no_images(done: Mapped, model_file: Path, raster: Path) -> None:
    """Only whole images have pictures; how far a cell is counts both."""
    model = SceneClassifier.load(model_file, engine="torch")
    assert model.sample_ is not None and done.shift is not None
    model.sample_ = replace(model.sample_, pictured=torch.tensor(7))
    shift = _again(done, model, raster)
    for cell, before in zip(shift.typical, done.shift.typical, strict=True):
        assert {number for number, _ in cell.nearest} < set(range(7)) and len(cell.nearest) == NEAREST
        assert cell.distance == before.distance <= cell.nearest[0][1]


def test_many_unknown_cells_are_thinned(
    done: Mapped, classifier: SceneClassifier, raster: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert done.shift is not None
    monkeypatch.setattr(module, "MOST", 10)
    monkeypatch.setattr(module, "GROUPS", 3)
    shift = _again(done, classifier, raster)
    assert len(shift.typical) == 3
    assert sum(cell.share for cell in shift.typical) == pytest.approx(done.shift.far + done.shift.unsure)
    assert len({(cell.row, cell.column) for cell in shift.typical} - set(_kept(done, 10))) == 0


def _kept(done: Mapped, most: int) -> list[tuple[int, int]]:
    """Every so many-th unknown cell."""
    numbers, _, _ = _layers(done.files[0])
    cells = [(int(row), int(column)) for row, column in np.argwhere(numbers == len(done.classes))]
    return cells[:: math.ceil(len(cells) / most)]


def test_a_map_of_which_nothing_is_unknown_has_no_typical_cells() -> None:
    """Worked out by hand: four cells, of which one has no data."""
    probabilities = np.array([[[0.9, 0.1], [0.2, 0.8]], [[0.5, 0.5], [np.nan, np.nan]]])
    distance = np.array([[0.1, 0.4], [0.1, np.nan]])
    plan: Plan = None  # type: ignore[assignment]
    classes = {
        (0.0, 0.0, 1.0): (np.array([[0, 1], [0, -1]]), Limits(np.inf, 0.0)),
        (1 / 3, 0.0, 2 / 3): (np.array([[0, 2], [0, -1]]), Limits(0.3, 0.0)),
        (1 / 3, 1 / 3, 1 / 3): (np.array([[0, 2], [2, -1]]), Limits(0.3, 0.6)),
    }
    for (far, unsure, known), (numbers, limits) in classes.items():
        found = ClassMap(probabilities, numbers, np.zeros((2, 2)), distance, limits)
        shift = find_shift(None, found, plan, None)  # type: ignore[arg-type]
        assert (shift.far, shift.unsure, shift.known) == pytest.approx((far, unsure, known))
        assert shift.typical == []
