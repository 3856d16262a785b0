"""How accuracy rose with the number of labels, so that one sees when more of them would teach little."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from mgcap.evaluation.assessment import Estimate
from mgcap.labelling.learner import LEAST_LABELS, Learner, Prior
from mgcap.labelling.pool import Pool

#: Points of a curve, at most.
POINTS = 8


class Point(NamedTuple):
    """Accuracy with the first labels."""

    labels: int
    estimate: Estimate


def learning_curve(
    pool: Pool,
    history: Sequence[tuple[int, int]],
    block: float | None = None,
    seed: int = 0,
    prior: Prior | None = None,
    points: int = POINTS,
) -> list[Point]:
    """Accuracy by spatial cross-validation for the first labels, for more, and for all of them.

    Args:
        pool: The cells.
        history: Cells and classes in the order in which they were labelled; of a cell the last one counts.
        block: Side of the blocks that are held out together, in the unit of the pool's places.
        seed: Of the folds.
        prior: A head that labels correct.
        points: How many, at most.
    """
    learner = Learner(pool, block, seed=seed)
    most = len({cell for cell, _ in history})
    if most < LEAST_LABELS:
        return []
    wanted = np.unique(np.geomspace(LEAST_LABELS, most, points).round().astype(int))
    labels: dict[int, int] = {}
    sets: dict[int, dict[int, int]] = {}
    for cell, number in history:
        labels[cell] = number
        sets[len(labels)] = dict(labels)
    found = []
    for count in wanted:
        estimate = learner.estimate(sets[int(count)], prior)
        if estimate is not None:
            found.append(Point(int(count), estimate))
    return found
