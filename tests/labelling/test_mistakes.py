from __future__ import annotations

from mgcap.labelling.learner import Learner
from mgcap.labelling.mistakes import mistakes
from tests.labelling.pools import grid_pool, some_labels


def test_planted_mistakes_are_found_and_nothing_else() -> None:
    pool, truth = grid_pool(noise=0.5)
    labels = some_labels(truth, 80)
    wrong = list(labels)[5:80:25]
    for cell in wrong:
        labels[cell] = (labels[cell] + 1) % 3
    learned = Learner(pool).fit({cell: kind + 2 for cell, kind in labels.items()})
    assert learned is not None
    found = mistakes(learned)
    assert {mistake.cell for mistake in found} == set(wrong)
    for mistake in found:
        assert mistake.given == labels[mistake.cell] + 2
        assert mistake.likely == truth[mistake.cell] + 2
        assert 0.5 < mistake.probability <= 1
    assert mistakes(learned, 2) == found[:2]


def test_without_held_out_labels_there_are_none() -> None:
    pool, truth = grid_pool()
    learned = Learner(pool).fit(some_labels(truth, 5))
    assert learned is not None
    assert mistakes(learned) == []
