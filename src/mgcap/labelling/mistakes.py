"""Labels that all the others contradict."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import numpy as np

from mgcap.labelling.learner import Learned


class Mistake(NamedTuple):
    """A label that is likely wrong."""

    cell: int
    given: int  #: the number of the class that it has
    likely: int  #: of the one that the other labels are evidence for
    probability: float  #: of that one, while the label was held out


def mistakes(learned: Learned, count: int = 20, own_cells: Collection[int] | None = None) -> list[Mistake]:
    """Labels that were called something else while they were held out, the clearest first.

    Args:
        learned: From all labels.
        count: How many, at most.
        own_cells: Those that are looked at; by default all.
    """
    known = np.flatnonzero(~np.isnan(learned.held_out).any(1))
    if own_cells is not None:
        known = known[np.isin(learned.cells[known], list(own_cells))]
    own = learned.held_out[known]
    likely = own.argmax(1)
    lead = own.max(1) - own[np.arange(len(known)), learned.targets[known]] if len(known) else np.zeros(0)
    found = []
    for place in np.argsort(-lead, kind="stable")[:count]:
        if lead[place] <= 0:
            break
        label = known[place]
        given, other = learned.classes[learned.targets[label]], learned.classes[likely[place]]
        found.append(Mistake(int(learned.cells[label]), int(given), int(other), float(own[place].max())))
    return found
