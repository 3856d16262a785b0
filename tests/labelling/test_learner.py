from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch

from mgcap.errors import DataError
from mgcap.evaluation.spatial import block_numbers
from mgcap.labelling import learner
from mgcap.labelling.learner import LEAST_KNOWN, LEAST_LABELS, Learner, Prior
from mgcap.labelling.pool import Pool
from tests.labelling.pools import grid_pool, some_labels


def test_a_few_labels_make_the_map() -> None:
    pool, truth = grid_pool()
    learned = Learner(pool).fit({cell: kind + 4 for cell, kind in some_labels(truth, 30).items()})
    assert learned is not None
    assert learned.classes.tolist() == [4, 5, 6]
    assert (learned.classes_of_cells == truth + 4).all()
    np.testing.assert_allclose(learned.probabilities.sum(1), 1, atol=1e-5)
    logits = pool.vectors.float() @ learned.weight.T + learned.bias
    np.testing.assert_allclose(learned.probabilities, logits.softmax(1), atol=1e-5)
    assert (learned.cells[1:] > learned.cells[:-1]).all()
    assert (learned.classes[learned.targets] == truth[learned.cells] + 4).all()
    assert sum(learned.counts.values()) == 30
    assert learned.estimate is not None
    assert learned.estimate.low > 0.6
    assert learned.estimate.value == 1


def test_the_order_of_labels_and_what_was_fitted_before_change_nothing() -> None:
    pool, truth = grid_pool(noise=1.5)
    labels = some_labels(truth, 60)
    first = Learner(pool).fit(labels)
    used = Learner(pool)
    used.fit(some_labels(truth, 40, seed=5))
    second = used.fit(dict(reversed(labels.items())))
    assert first is not None
    assert second is not None
    for name in ("weight", "bias", "probabilities", "held_out", "cells", "targets"):
        np.testing.assert_array_equal(getattr(first, name), getattr(second, name))
    np.testing.assert_allclose(first.distance, second.distance, atol=1e-6)
    assert (first.estimate, first.random, first.limit) == (second.estimate, second.random, second.limit)


def test_blocks_that_were_held_out_show_what_neighbours_hide() -> None:
    # each patch of land has its own look, which says nothing of its kind
    rng = np.random.default_rng(0)
    rows, columns = np.divmod(np.arange(400), 20)
    patch = (rows // 4) * 5 + columns // 4
    kind = rng.permutation(25)[patch] % 2
    vectors = torch.from_numpy(rng.normal(size=(25, 24))[patch] + 0.1 * rng.normal(size=(400, 24))).half()
    places = (np.column_stack((columns, rows)) + 0.5) * 100
    pool = Pool(vectors, np.column_stack((0 * rows, rows, columns)), places, 100.0, torch.zeros(24))
    learned = Learner(pool, block=400.0).fit({cell: int(kind[cell]) for cell in rng.permutation(400)[:150].tolist()})
    assert learned is not None
    assert learned.estimate is not None
    assert learned.random is not None
    assert learned.random.value > 0.95
    assert learned.estimate.value < 0.75
    assert learned.estimate.high - learned.estimate.low > learned.random.high - learned.random.low


def test_nothing_is_said_of_the_accuracy_too_early() -> None:
    pool, truth = grid_pool()
    labels = list(some_labels(truth, 60).items())
    few = Learner(pool).fit(dict(labels[: LEAST_LABELS - 1]))
    assert few is not None
    assert few.estimate is None
    assert few.random is None
    assert np.isnan(few.held_out).all()
    assert few.limit == np.inf
    one_block = Learner(pool, block=1e6).fit(dict(labels))
    assert one_block is not None
    assert one_block.estimate is None
    assert one_block.random is not None
    assert not np.isnan(one_block.held_out).any()
    assert Learner(pool, block=1e6).estimate(dict(labels)) is None
    whole = Learner(pool).fit(dict(labels))
    assert whole is not None
    assert Learner(pool).estimate(dict(labels)) == whole.estimate


def test_one_class_and_none() -> None:
    pool, _ = grid_pool()
    assert Learner(pool).fit({}) is None
    assert Learner(pool).fit({1: 0, 7: 0}) is None
    assert Learner(pool).estimate({1: 0, 7: 0}) is None


@pytest.mark.parametrize("count", [5, 60])
def test_a_class_that_occurs_once(count: int) -> None:
    pool, truth = grid_pool()
    labels = {cell: kind for cell, kind in some_labels(truth, count).items() if kind != 2}
    single = int(np.flatnonzero(truth == 2)[0])
    labels[single] = 2
    learned = Learner(pool).fit(labels)
    assert learned is not None
    assert np.isfinite(learned.probabilities).all()
    assert learned.classes_of_cells[single] == 2
    if count == 60:
        assert (learned.classes_of_cells == truth).mean() > 0.9
        assert learned.estimate is not None
        assert 0.9 < learned.estimate.value < 1  # while it is held out, it cannot be known
        wrong = learned.held_out.argmax(1) != learned.targets
        assert learned.cells[wrong].tolist() == [single]


def _prior(pool: Pool) -> Prior:
    generator = torch.Generator().manual_seed(3)
    weight = 0.3 * torch.randn(3, 24, generator=generator)
    return Prior(torch.cat((weight, torch.zeros(1, 24))), torch.tensor([0.2, -0.1, 0.3, 0.0]))


def test_without_labels_the_map_is_that_of_the_prior() -> None:
    pool, _ = grid_pool()
    prior = _prior(pool)
    learned = Learner(pool).fit({}, prior)
    assert learned is not None
    assert learned.classes.tolist() == [0, 1, 2]  # of the fourth nothing is known yet
    expected = (pool.vectors.float() @ prior.weight[:3].T + prior.bias[:3]).softmax(1)
    np.testing.assert_allclose(learned.probabilities, expected, atol=1e-6)
    assert learned.estimate is None
    assert learned.held_out.shape == (0, 3)
    assert (learned.distance == 2).all()
    assert not learned.unknown.any()


def test_labels_correct_the_prior_where_it_is_wrong() -> None:
    pool, truth = grid_pool()
    prior = _prior(pool)
    before = Learner(pool).fit({}, prior)
    assert before is not None
    wrong = int(np.flatnonzero(before.classes_of_cells != truth)[0])
    one = Learner(pool).fit({wrong: int(truth[wrong])}, prior)
    assert one is not None
    assert one.classes_of_cells[wrong] == truth[wrong]
    assert len(np.unique(one.classes_of_cells)) > 1  # one label does not make everything its class
    new = Learner(pool).fit({cell: 3 if kind == 2 else kind for cell, kind in some_labels(truth, 60).items()}, prior)
    assert new is not None
    assert new.classes.tolist() == [0, 1, 2, 3]
    assert (new.classes_of_cells == np.where(truth == 2, 3, truth)).all()


def test_the_limit_is_what_held_out_cells_rarely_pass() -> None:
    pool, truth = grid_pool(noise=1.0)
    own = Learner(pool, alpha=0.25)
    learned = own.fit(some_labels(truth, 80))
    few = own.fit(some_labels(truth, LEAST_KNOWN - 1))
    assert learned is not None
    assert few is not None
    assert few.limit == np.inf
    # nearly each label from those of all other blocks: a fold takes out a few more
    vectors = pool.vectors.double().numpy()
    vectors -= vectors.mean(0)
    own = vectors[learned.cells] / np.linalg.norm(vectors[learned.cells], axis=1, keepdims=True)
    blocks = block_numbers(pool.places, 400.0)[learned.cells]
    cosines = np.where(blocks[:, None] == blocks, -1, own @ own.T).max(1)
    assert learned.limit == pytest.approx(np.quantile(1 - cosines, 0.75), abs=0.05)
    assert 0 < learned.unknown.mean() < 0.5


def test_the_limit_is_the_same_by_parts_and_of_a_share_of_many_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    pool, truth = grid_pool(40, noise=1.0)
    labels = some_labels(truth, 1200)
    whole = Learner(pool, alpha=0.2).fit(labels)
    monkeypatch.setattr(learner, "AT_ONCE", 1200 * 7)
    parts = Learner(pool, alpha=0.2).fit(labels)
    monkeypatch.setattr(learner, "LIMIT_LABELS", 400)
    some = Learner(pool, alpha=0.2).fit(labels)
    assert whole is not None and parts is not None and some is not None
    assert parts.limit == pytest.approx(whole.limit, abs=1e-6)
    assert some.limit == pytest.approx(whole.limit, abs=0.03)


#: Prints by how many megabytes the memory of its process grew.
_MANY = """
import resource
import numpy as np, torch
from mgcap.labelling.learner import Learner, _Labels
from mgcap.labelling.pool import Pool
count, rng = 20_000, np.random.default_rng(0)
numbers = np.arange(count)
cells = np.stack((0 * numbers, numbers // 200, numbers % 200), 1)
pool = Pool(torch.from_numpy(rng.normal(size=(count, 8))).half(), cells, 100.0 * cells[:, 1:], 100.0, torch.zeros(8))
labels = _Labels(numbers, rng.integers(0, 3, count), np.arange(3), None)
learner = Learner(pool)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
learner._limit(labels, [rng.integers(0, 5, count), None])
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
"""


def test_memory_does_not_grow_with_the_square_of_the_labels() -> None:
    """20,000 labels have 1.6 GB of cosines with each other."""
    done = subprocess.run([sys.executable, "-c", _MANY], capture_output=True, text=True, check=True)
    assert float(done.stdout) < 200


def test_labels_that_cannot_be() -> None:
    pool, _ = grid_pool()
    with pytest.raises(DataError, match="no cell 400"):
        Learner(pool).fit({400: 1, 3: 0})
    with pytest.raises(DataError, match="-2"):
        Learner(pool).fit({4: -2, 3: 0})
    with pytest.raises(DataError, match="other vectors"):
        Learner(pool).fit({}, Prior(torch.ones(2, 5), torch.zeros(2)))


def test_the_estimate_is_of_the_map_though_hard_cells_were_labelled() -> None:
    pool, truth = grid_pool(40, noise=2.2)
    made = Learner(pool)
    random = dict(list(some_labels(truth, 60).items()))
    first = made.fit(random)
    assert first is not None
    ordered = np.sort(first.probabilities, axis=1)
    hard = np.argsort(ordered[:, -1] - ordered[:, -2])[:60]
    learned = made.fit(random | {int(cell): int(truth[cell]) for cell in hard})
    assert learned is not None
    assert learned.estimate is not None
    right = (learned.classes_of_cells == truth).mean()
    counted = (learned.held_out.argmax(1) == learned.targets).mean()
    assert counted < right - 0.1
    assert abs(learned.estimate.value - right) < 0.6 * (right - counted)
    assert learned.estimate.low < right < learned.estimate.high
