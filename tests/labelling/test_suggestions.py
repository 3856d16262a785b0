from __future__ import annotations

import re

import numpy as np
import pytest
import torch

from mgcap.errors import ValuesError
from mgcap.labelling import suggestions
from mgcap.labelling.learner import Learner, Prior
from mgcap.labelling.pool import Pool
from mgcap.labelling.suggestions import MODES, suggest
from mgcap.typing import Array
from tests.labelling.pools import grid_pool, some_labels

NAMES = ["forest", "housing", "orchard"]


def _overlaps(pool: Pool, cells: list[int], others: list[int]) -> Array:
    apart = np.abs(pool.places[cells][:, None] - pool.places[others]).max(-1)
    return apart < pool.tile - 1e-3


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("labelled", [0, 3, 40])
def test_suggestions_overlap_neither_labels_nor_each_other(mode: str, labelled: int) -> None:
    pool, truth = grid_pool(40, step=0.25, noise=1.5)
    labels = dict(list(some_labels(truth, 40).items())[:labelled])
    learned = Learner(pool).fit(labels)
    found = suggest(pool, learned, labels, mode, 8, NAMES)
    cells = [suggestion.cell for suggestion in found]
    assert cells
    assert len(cells) == 8 or labelled == 40  # then there is little left between them
    assert np.array_equal(_overlaps(pool, cells, cells), np.eye(len(cells), dtype=bool))
    assert not _overlaps(pool, cells, list(labels)).any()
    assert found == suggest(pool, learned, labels, mode, 8, NAMES)


def test_teach_asks_for_what_lies_between_two_classes() -> None:
    pool, truth = grid_pool(noise=1.5)
    labels = some_labels(truth, 30)
    learned = Learner(pool).fit(labels)
    assert learned is not None
    found = suggest(pool, learned, labels, "teach", 5, NAMES)
    ordered = np.sort(learned.probabilities, axis=1)
    margins = ordered[:, -1] - ordered[:, -2]
    free = np.setdiff1d(np.arange(len(pool)), list(labels))
    for suggestion in found:
        assert margins[suggestion.cell] <= np.quantile(margins[free], 0.1)
        words = re.fullmatch(r"between (\w+) \((0\.\d\d)\) and (\w+) \((0\.\d\d)\)", suggestion.reason)
        assert words is not None
        for name, share in (words.group(1, 2), words.group(3, 4)):
            assert learned.probabilities[suggestion.cell, NAMES.index(name)] == pytest.approx(float(share), abs=0.006)
        best = learned.probabilities[suggestion.cell].argmax()
        assert words.group(1) == NAMES[best]
    scores = [suggestion.score for suggestion in found]
    assert scores == sorted(scores, reverse=True)


def test_the_first_suggestions_stand_for_all_kinds() -> None:
    pool, truth = grid_pool(kinds=5)
    found = suggest(pool, None, [], "teach", 5)
    assert {int(truth[suggestion.cell]) for suggestion in found} == set(range(5))
    stand = [int(re.fullmatch(r"stands for (\d+) cells", suggestion.reason)[1]) for suggestion in found]  # type: ignore[index]
    assert sum(stand) == len(pool)
    assert stand == [int((truth == truth[suggestion.cell]).sum()) for suggestion in found]


@pytest.mark.parametrize("sample", [2048, 128])
def test_unknown_finds_the_kind_that_no_label_has(sample: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suggestions, "SAMPLE", sample)
    pool, truth = grid_pool(kinds=4)
    labels = {cell: kind for cell, kind in some_labels(truth, 60).items() if kind != 3}
    found = suggest(pool, Learner(pool).fit(labels), labels, "unknown", 3)
    assert truth[found[0].cell] == 3
    many = int(re.fullmatch(r"like nothing labelled so far; stands for (\d+) cells?", found[0].reason)[1])  # type: ignore[index]
    assert 0 < many <= 1.5 * (truth == 3).sum()


def test_rare_hunts_for_the_class_with_the_fewest_labels() -> None:
    pool, truth = grid_pool(noise=1.0)
    labels = {cell: kind for cell, kind in some_labels(truth, 60).items() if kind != 2}
    labels |= {int(cell): 2 for cell in np.flatnonzero(truth == 2)[:2]}
    found = suggest(pool, Learner(pool).fit(labels), labels, "rare", 4, NAMES)
    for suggestion in found[:3]:
        assert truth[suggestion.cell] == 2
        assert re.fullmatch(r"may be orchard \(\d\.\d\d\), of which there are 2 labels", suggestion.reason)
    assert "like nothing labelled" in found[3].reason


def test_a_prior_has_something_to_teach_without_labels() -> None:
    pool, _ = grid_pool()
    prior = Prior(torch.randn(3, 24, generator=torch.Generator().manual_seed(0)), torch.zeros(3))
    found = suggest(pool, Learner(pool).fit({}, prior), [], "teach", 3, NAMES)
    assert all(suggestion.reason.startswith("between ") for suggestion in found)
    (rare, *_) = suggest(pool, Learner(pool).fit({}, prior), [], "rare", 3, NAMES)
    assert rare.reason.endswith("of which there are no labels")


def test_when_all_is_labelled_nothing_is_suggested() -> None:
    pool, truth = grid_pool(4)
    labels = dict(enumerate(truth.tolist()))
    learned = Learner(pool).fit(labels)
    assert [suggest(pool, learned, labels, mode) for mode in MODES] == [[], [], []]
    assert len(suggest(pool, None, [], "teach", 100)) == len(pool)


def test_suggestions_teach_more_than_chance() -> None:
    # two large kinds, and two small ones that chance rarely meets
    pool, truth = grid_pool(30, kinds=8, noise=1.2)
    kinds = np.select([truth < 4, truth < 6], [0, 1], truth - 4)
    right = []
    for seed in range(3):
        labels: dict[int, int] = {}
        learner = Learner(pool)
        for _ in range(6):
            found = suggest(pool, learner.fit(labels), labels, "teach", 10, seed=seed)
            labels |= {suggestion.cell: int(kinds[suggestion.cell]) for suggestion in found}
        order = np.random.default_rng(seed).permutation(len(pool))[:60]
        chance = learner.fit({int(cell): int(kinds[cell]) for cell in order})
        taught = learner.fit(labels)
        assert taught is not None
        assert chance is not None
        right.append([(learned.classes_of_cells == kinds).mean() for learned in (taught, chance)])
    taught_right, chance_right = np.mean(right, 0)
    assert taught_right > chance_right


def test_a_mode_that_is_none() -> None:
    pool, _ = grid_pool(4)
    with pytest.raises(ValuesError, match="did you mean 'teach'"):
        suggest(pool, None, [], "teech")
