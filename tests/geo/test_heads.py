"""Heads on vectors against products and means written out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from mgcap.classifier import SceneClassifier
from mgcap.errors import RasterError
from mgcap.geo.blocks import Cells
from mgcap.geo.heads import classify_index, coarser
from mgcap.geo.index import Index, create_index
from mgcap.inference.fingerprints import descriptor_fingerprint
from mgcap.inference.unknown import Limits
from tests.geo.indexes import about_of, plan_of

ROWS, COLUMNS = 9, 13


@pytest.fixture(scope="module")
def classifier(model_file: Path) -> SceneClassifier:
    return SceneClassifier.load(model_file, engine="torch")


@pytest.fixture
def numbers(classifier: SceneClassifier, rng: np.random.Generator) -> Cells:
    """Of cells of which some have no data."""
    valid = np.where(rng.random((ROWS, COLUMNS)) < 0.3, 0, 200).astype(np.uint8)
    valid[4:6, 4:8] = 0
    valid[8, 12] = 200
    vectors = rng.normal(0, 0.02, (ROWS, COLUMNS, classifier.model_.head.in_features)) * (valid[..., None] > 0)
    return Cells(vectors.astype(np.float16), rng.integers(0, 2, (ROWS, COLUMNS)).astype(np.uint16), valid)


@pytest.fixture
def index(classifier: SceneClassifier, numbers: Cells, tmp_path: Path) -> Index:
    """Of 4 x 4 cells a tile, in blocks of 5 x 5."""
    plan = plan_of(ROWS, COLUMNS, cells_in_tile=4, block=5)
    about = about_of(plan, descriptor=descriptor_fingerprint(classifier.model_), angles=(0, 90))
    made = create_index(tmp_path / "scene.zarr", about, numbers.vectors.shape[-1])
    for chunk in range(plan.chunks):
        made.write(chunk, Cells(*(own[plan.cells(chunk)] for own in numbers)))
    return made


def _probabilities(classifier: SceneClassifier, vectors: Any) -> Any:
    head = classifier.model_.head
    logits = vectors.astype(np.float64) @ head.weight.detach().double().numpy().T + head.bias.detach().double().numpy()
    grown = np.exp(logits - logits.max(-1, keepdims=True))
    return grown / grown.sum(-1, keepdims=True)


def test_cells_have_the_probabilities_of_their_vectors(
    classifier: SceneClassifier, index: Index, numbers: Cells
) -> None:
    found = classify_index(classifier.model_, index, coarser(index, 4))
    wanted = _probabilities(classifier, numbers.vectors)
    known = numbers.valid > 0
    assert np.allclose(found.probabilities[known], wanted[known], atol=1e-5)
    assert np.isnan(found.probabilities[~known]).all() and np.isnan(found.angles[~known]).all()
    assert (found.classes == np.where(known, wanted.argmax(-1), -1)).all()
    assert (found.angles[known] == 90 * numbers.rotations[known]).all()
    assert found.distance is None and not found.unknown.any()


@pytest.mark.parametrize(("cells", "least"), [(2, 0.5), (1, 0.5), (1, 0.7), (2, 1.0), (1, 0.0)])
def test_larger_cells_have_the_mean_of_what_is_known_in_them(
    classifier: SceneClassifier, index: Index, numbers: Cells, cells: int, least: float
) -> None:
    """Squares at the right and lower edge, too, which have fewer cells."""
    times, plan = 4 // cells, coarser(index, cells).model_copy(update={"min_valid": least})
    assert plan.cell == (10 * times, 10 * times) and plan.cells_in_tile == cells
    found = classify_index(classifier.model_, index, plan, sample=classifier.sample_)
    assert found.classes.shape == (plan.grid.rows, plan.grid.columns) == (-(-ROWS // times), -(-COLUMNS // times))
    single = classify_index(classifier.model_, index, coarser(index, 4), sample=classifier.sample_)
    p, known = _probabilities(classifier, numbers.vectors), numbers.valid > 0
    for row, column in np.ndindex(found.classes.shape):
        square = np.s_[row * times : (row + 1) * times, column * times : (column + 1) * times]
        inside = known[square]
        if inside.mean() < least or not inside.any():
            assert found.classes[row, column] == -1 and np.isnan(found.probabilities[row, column]).all()
            assert np.isnan(found.distance[row, column])
            continue
        mean = p[square][inside].mean(0)
        assert np.allclose(found.probabilities[row, column], mean, atol=1e-5)
        assert found.classes[row, column] == mean.argmax()
        surest = p[square][inside].max(-1).argmax()
        assert found.angles[row, column] == 90 * numbers.rotations[square][inside][surest]
        assert found.distance[row, column] == pytest.approx(single.distance[square][inside].mean(), abs=1e-5)
    assert found.has_data.sum() > 0 and found.has_data[-1, -1]


def test_the_whole_area_of_a_map_stays_with_larger_cells(classifier: SceneClassifier, index: Index) -> None:
    for chunk in range(index.plan.chunks):
        part = index.read(chunk)
        index.write(chunk, part._replace(valid=np.full_like(part.valid, 255)))
    for cells in (4, 2, 1):
        plan = coarser(index, cells)
        found = classify_index(classifier.model_, index, plan)
        boxes = [plan.grid.box(row, column) for row, column in np.argwhere(found.has_data)]
        assert sum((right - left) * (low - top) for left, top, right, low in boxes) == 10 * ROWS * 10 * COLUMNS


def test_unknown_cells_are_far_or_unsure(classifier: SceneClassifier, index: Index, numbers: Cells) -> None:
    sample = classifier.sample_
    assert sample is not None
    plain = classify_index(classifier.model_, index, coarser(index, 4), sample=sample)
    limits = Limits(float(np.nanmedian(plain.distance)), 0.6)
    found = classify_index(classifier.model_, index, coarser(index, 4), sample=sample, limits=limits)
    wanted = (plain.distance > limits.distance) | (plain.probabilities.max(-1) < limits.confidence)
    assert (found.unknown == wanted).all()
    assert 0.4 < found.unknown[numbers.valid > 0].mean() < 1
    assert (found.probabilities[found.has_data] == plain.probabilities[found.has_data]).all()


def test_cells_that_do_not_fit_are_refused(index: Index) -> None:
    for cells in (3, 8, 0, -1):
        with pytest.raises(RasterError, match=r"has 4 cells along the side of a tile; `cells` takes a divisor"):
            coarser(index, cells)


def test_an_index_of_other_descriptors_is_refused(classifier: SceneClassifier, index: Index) -> None:
    with torch.no_grad():
        first = next(classifier.model_.backbones.parameters())
        first.add_(1)
        try:
            with pytest.raises(RasterError, match="was made with other descriptors than this model's"):
                classify_index(classifier.model_, index, coarser(index, 4))
        finally:
            first.sub_(1)
