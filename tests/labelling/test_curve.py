from __future__ import annotations

from mgcap.labelling.curve import learning_curve
from mgcap.labelling.learner import Learner
from tests.labelling.pools import grid_pool, some_labels


def test_it_rises_with_labels_to_the_estimate_of_all() -> None:
    pool, truth = grid_pool(kinds=6, noise=2.0)
    labels = some_labels(truth, 200)
    found = learning_curve(pool, list(labels.items()), points=5)
    assert [point.labels for point in found] == [8, 18, 40, 89, 200]
    assert found[-1].estimate.value > found[0].estimate.value + 0.1
    assert found[-1].estimate.high - found[-1].estimate.low < found[0].estimate.high - found[0].estimate.low
    assert found[-1].estimate == Learner(pool).estimate(labels)


def test_a_label_that_is_changed_counts_once_and_as_it_is_last() -> None:
    pool, truth = grid_pool(noise=1.5)
    labels = list(some_labels(truth, 30).items())
    corrected = [(cell, (kind + 1) % 3) for cell, kind in labels[:4]] + labels
    last = learning_curve(pool, corrected)[-1]
    assert last == learning_curve(pool, labels)[-1]
    assert last.labels == 30


def test_with_few_labels_there_is_none() -> None:
    pool, truth = grid_pool()
    assert learning_curve(pool, list(some_labels(truth, 7).items())) == []
    assert learning_curve(pool, [(cell, 0) for cell in range(30)]) == []
