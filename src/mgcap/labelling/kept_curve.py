"""The learning curve while people label: points for the first labels are kept, so that new ones are cheap."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

from mgcap.evaluation.assessment import Estimate
from mgcap.labelling.curve import Point
from mgcap.labelling.learner import LEAST_LABELS, Learner, Prior

#: From one point to the next there are so many times more labels.
GROWTH = 1.5


class KeptCurve:
    """A learning curve that grows.

    Args:
        learner: Says how right the first labels were; for this alone, as it works beside another one.
    """

    def __init__(self, learner: Learner) -> None:
        self.learner = learner
        self._kept: dict[bytes, Estimate | None] = {}

    def points(
        self,
        order: Sequence[tuple[int, int]],
        prior: Prior | None,
        last: Estimate | None,
        busy: Callable[[], bool],
    ) -> list[Point] | None:
        """The points for labels in their order; None if something else is to be done first.

        Args:
            order: Cells and classes, each cell once.
            prior: The head that labels correct.
            last: What is known for all of them.
            busy: Whether something else is to be done first.
        """
        found = []
        count = LEAST_LABELS
        while count < len(order) / 1.15:
            first = dict(order[:count])
            known = None if prior is None else [prior.weight.shape, float(prior.weight.double().sum())]
            key = hashlib.sha256(repr((sorted(first.items()), known)).encode()).digest()
            if key not in self._kept:
                if busy():
                    return None
                self._kept[key] = self.learner.estimate(first, prior)
            if (estimate := self._kept[key]) is not None:
                found.append(Point(count, estimate))
            count = max(count + 1, round(GROWTH * count))
        if last is not None:
            found.append(Point(len(order), last))
        return found
