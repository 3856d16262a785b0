"""The learning curve while people label: points for the first labels are kept, so that new ones are cheap."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

from mgcap.evaluation.assessment import Estimate
from mgcap.labelling.curve import Point
from mgcap.labelling.learner import LEAST_LABELS

#: How many times more labels each point has than the one before; the last two are farther apart than ``LEAST_GROWTH``.
GROWTH, LEAST_GROWTH = 1.5, 1.15


class KeptCurve:
    """A learning curve that grows.

    Args:
        measure: Says how right the map is with the first labels; None if that cannot be said.
    """

    def __init__(self, measure: Callable[[dict[int, int]], Estimate | None]) -> None:
        self.measure = measure
        self._kept: dict[bytes, Estimate | None] = {}

    def points(
        self, order: Sequence[tuple[int, int]], last: Estimate | None, busy: Callable[[], bool]
    ) -> list[Point] | None:
        """The points for labels in their order; None if something else is to be done first.

        Args:
            order: Cells and classes, each cell once.
            last: What is known for all of them.
            busy: Whether something else is to be done first.
        """
        found = []
        count = LEAST_LABELS
        while count < len(order) / LEAST_GROWTH:
            first = dict(order[:count])
            key = hashlib.sha256(repr(sorted(first.items())).encode()).digest()
            if key not in self._kept:
                if busy():
                    return None
                self._kept[key] = self.measure(first)
            if (estimate := self._kept[key]) is not None:
                found.append(Point(count, estimate))
            count = max(count + 1, round(GROWTH * count))
        if last is not None:
            found.append(Point(len(order), last))
        return found
