"""Who computes the parts of a plan."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mgcap.classifier import SceneClassifier
from mgcap.errors import RasterError
from mgcap.geo.blocks import Cells
from mgcap.geo.indexing import plan_work
from mgcap.geo.opening import open_raster
from mgcap.geo.plan import MapOptions, Plan
from mgcap.geo.tiles import Answers
from mgcap.geo.work import compute_here, compute_part, load_for
from mgcap.persistence.files import sha256_of


@pytest.fixture(scope="module")
def classifier(model_file: Path) -> SceneClassifier:
    return SceneClassifier.load(model_file, engine="torch")


@pytest.fixture
def plans(classifier: SceneClassifier, model_file: Path, write_raster: Any, picture: Any) -> tuple[Plan, Plan]:
    """For tiles and for cells of one raster."""
    raster, options = write_raster(picture), MapOptions(exact=True, chunk=5)
    with open_raster(raster) as dataset:
        tiles, cells = (plan_work(classifier, model_file, dataset, raster, options, way).plan for way in (True, False))
    return tiles, cells


def test_a_part_is_tiles_or_cells_as_its_plan_says(classifier: SceneClassifier, plans: tuple[Plan, Plan]) -> None:
    tiles, cells = (compute_part(classifier, plan, 1) for plan in plans)
    assert isinstance(tiles, Answers) and tiles.probabilities.shape == (5, 4)
    assert isinstance(cells, Cells)
    rows, columns = plans[1].cells(1)  # type: ignore[attr-defined]
    assert cells.valid.shape == (rows.stop - rows.start, columns.stop - columns.start)


def test_parts_are_computed_one_by_one_as_they_are_asked_for(
    classifier: SceneClassifier, plans: tuple[Plan, Plan]
) -> None:
    asked: list[int] = []

    def numbers() -> Iterator[int]:
        for number in (2, 0, 1):
            asked.append(number)
            yield number

    found = compute_here(classifier)(plans[0], numbers())
    assert not asked
    first, part = next(iter(found))
    assert (first, asked) == (2, [2])
    again = compute_part(classifier, plans[0], 2)
    assert all(np.array_equal(a, b, equal_nan=True) for a, b in zip(part, again, strict=True))


def test_a_model_is_loaded_once_and_no_other_in_its_place(model_file: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.mgcap"
    copy.write_bytes(model_file.read_bytes())
    given = str(copy), sha256_of(copy), "torch"
    assert load_for(*given) is load_for(*given)
    load_for.cache_clear()
    with copy.open("ab") as file:
        file.write(b"x")
    with pytest.raises(RasterError, match=r"copy\.mgcap is not the model that the map was planned with"):
        load_for(*given)
