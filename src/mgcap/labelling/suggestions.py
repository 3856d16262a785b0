"""Which cells to label next, and why.

``teach`` takes cells between two classes, those with the smallest margin of probabilities, and before there are ten
labels cells that stand for many others. ``rare`` hunts for the classes with the fewest labels. ``unknown`` takes cells
that are unlike all labels, each weighted by how many others it stands for. Tiles of suggestions overlap neither each
other nor labelled ones. Entropy taught less than the margin, and weights for density no more;
``benchmarks/labelling.py`` compares with random choice.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from mgcap.errors import ValuesError, did_you_mean
from mgcap.labelling.learner import Learned
from mgcap.labelling.pool import Pool
from mgcap.threads import one_thread
from mgcap.typing import Array

#: What suggestions can be made for.
MODES = ("teach", "rare", "unknown")
#: Labels before which representative cells are suggested rather than cells between classes.
FIRST = 10
#: Cells of a large pool that are looked at: as those that others are like, and as those to suggest.
SAMPLE, CANDIDATES = 1024, 1024
#: Of cells between classes, as many times more are looked at as are asked for.
MORE = 40
#: How much likeness to what is suggested beside it counts against a cell between two classes.
DIVERSITY = 0.25
#: With ``rare``, each of these many suggestions is a cell unlike all labels, where a class may be that has none yet.
ELSEWHERE = 4


class Suggestion(NamedTuple):
    """A cell to label."""

    cell: int
    reason: str  #: in words, to be shown behind the number of the cell
    score: float  #: the higher, the better, among suggestions of the same mode


@dataclass
class _Free:
    """Cells that can be suggested still."""

    pool: Pool
    free: Array  #: ``[n]`` bool

    @classmethod
    def of(cls, pool: Pool, labelled: Iterable[int]) -> _Free:
        found = cls(pool, np.ones(len(pool), bool))
        for cell in labelled:
            found.take(int(cell))
        return found

    def take(self, cell: int) -> None:
        """Neither this cell nor what overlaps it can be suggested from now on."""
        near = self.pool.near(cell)
        self.free[near] = False
        self.free[cell] = False

    @property
    def cells(self) -> Array:
        found: Array = np.flatnonzero(self.free)
        return found


def suggest(
    pool: Pool,
    learned: Learned | None,
    labels: Collection[int],
    mode: str = "teach",
    count: int = 10,
    names: Sequence[str] = (),
    seed: int = 0,
) -> list[Suggestion]:
    """Cells to label next, the best first; fewer where there are no more.

    Args:
        pool: The cells.
        learned: What is known from the labels; None if that is nothing.
        labels: Numbers of the labelled cells.
        mode: One of :data:`MODES`.
        count: How many.
        names: Of the classes of the project.
        seed: Draws the cells of a large pool that are looked at.

    Raises:
        ValuesError: If there is no such mode.
    """
    if mode not in MODES:
        raise ValuesError(f"`mode` is {', '.join(MODES[:-1])} or {MODES[-1]}, not {mode}{did_you_mean(mode, MODES)}")
    with one_thread():  # several would wait for each other on a busy machine
        return _suggest(pool, learned, labels, mode, count, names, seed)


def _suggest(
    pool: Pool,
    learned: Learned | None,
    labels: Collection[int],
    mode: str,
    count: int,
    names: Sequence[str],
    seed: int,
) -> list[Suggestion]:
    free = _Free.of(pool, labels)
    # a head that was there before has something to teach without labels, too
    cold = learned is None or (len(labels) < FIRST and not _prior(learned))
    if mode == "unknown" or (mode == "teach" and cold) or learned is None:
        return _representative(free, labels, count, seed, far=mode != "teach")
    if mode == "rare":
        return _rare(free, learned, labels, count, names, seed)
    return _between(free, learned, count, names)


def _prior(learned: Learned) -> bool:
    """Whether it knows classes that no label has."""
    return min(learned.counts.values()) == 0


def _named(names: Sequence[str], number: int) -> str:
    return names[number] if number < len(names) else f"class {number}"


def _between(free: _Free, learned: Learned, count: int, names: Sequence[str]) -> list[Suggestion]:
    """Cells with the smallest margin between two classes, unlike each other."""
    cells = free.cells
    top = torch.from_numpy(learned.probabilities[cells]).topk(2, 1)
    margins = (top.values[:, 0] - top.values[:, 1]).numpy()
    order = np.argsort(margins, kind="stable")[: MORE * count]
    cells, sure, classes = cells[order], margins[order], learned.classes[top.indices.numpy()[order]]
    directions = free.pool.likeness.directions(cells)
    apart = np.ones(len(cells))
    found: list[Suggestion] = []
    while len(found) < count:
        scores = np.where(free.free[cells], (1 - sure) ** 2 * apart**DIVERSITY, -1.0)
        if not len(scores) or scores.max() < 0:
            break
        best = int(scores.argmax())
        words = " and ".join(
            f"{_named(names, int(number))} ({share:.2f})"
            for number, share in zip(classes[best], top.values[order[best]].tolist(), strict=True)
        )
        found.append(Suggestion(int(cells[best]), f"between {words}", float(scores[best])))
        free.take(int(cells[best]))
        apart = np.minimum(apart, (1 - directions @ directions[best]).clamp(1e-6, 1).numpy())
    return found


def _representative(free: _Free, labels: Iterable[int], count: int, seed: int, far: bool = True) -> list[Suggestion]:
    """Cells that many others are like which are like no label, one after the other."""
    pool, labelled = free.pool, np.array(sorted(labels), np.int64)
    rng = np.random.default_rng((seed, 3))
    sample = _draw(rng, np.arange(len(pool)), SAMPLE)
    best = _nearest(pool, sample, labelled)
    cells = _draw(rng, free.cells, CANDIDATES)
    own = 1 - _nearest(pool, cells, labelled) if far else torch.ones(len(cells))
    cosines = pool.likeness.to(cells, sample)
    found: list[tuple[int, float]] = []
    while len(found) < count:
        gains = (cosines - best.unsqueeze(1)).clamp_min(0).mean(0) * own
        gains[torch.from_numpy(~free.free[cells])] = -1
        if not len(gains) or float(gains.max()) < 0:
            break
        place = int(gains.argmax())
        found.append((int(cells[place]), float(gains[place])))
        best = torch.maximum(best, cosines[:, place])
        free.take(int(cells[place]))
    stand = _stand_for(pool, labelled, [cell for cell, _ in found], sample)
    like = "like nothing labelled so far; stands for" if len(labelled) else "stands for"
    return [
        Suggestion(cell, f"{like} {many} cell{'s' if many != 1 else ''}", score)
        for (cell, score), many in zip(found, stand, strict=True)
    ]


def _draw(rng: np.random.Generator, cells: Array, most: int) -> Array:
    return cells if len(cells) <= most else np.sort(rng.choice(cells, most, replace=False))


def _nearest(pool: Pool, cells: Array, labelled: Array) -> Tensor:
    """Cosines of cells with the nearest labelled one."""
    return pool.likeness.to(labelled, cells).amax(1) if len(labelled) else torch.full((len(cells),), -1.0)


def _stand_for(pool: Pool, labelled: Array, chosen: list[int], sample: Array) -> list[int]:
    """How many cells of the pool are nearest to each of the chosen ones, by a sample; at least itself."""
    if not chosen:
        return []
    every = pool.likeness.to(np.concatenate((np.array(chosen, np.int64), labelled)), sample)
    counts = np.bincount(every.argmax(1).numpy(), minlength=every.shape[1])[: len(chosen)]
    return [max(1, round(int(n) * len(pool) / len(sample))) for n in counts]


def _rare(
    free: _Free, learned: Learned, labels: Collection[int], count: int, names: Sequence[str], seed: int
) -> list[Suggestion]:
    """In turn for each rare class the cell that may be it, and cells where classes may be that nobody has seen."""
    areas = np.bincount(learned.probabilities.argmax(1), minlength=len(learned.classes)) / len(learned.probabilities)
    counts = np.bincount(learned.targets, minlength=len(learned.classes))
    rare = (counts <= counts.mean() / 2) | (areas <= 0.5 / len(areas))
    order = np.lexsort((areas, counts))
    order = order[rare[order]] if rare.any() else order[:1]
    elsewhere = _representative(free, labels, count // ELSEWHERE, seed)
    found: list[Suggestion] = []
    places = cycle(order)
    while len(found) < count and (elsewhere or free.free.any()):
        if elsewhere and (len(found) % ELSEWHERE == ELSEWHERE - 1 or not free.free.any()):
            found.append(elsewhere.pop(0))
            continue
        cells, place = free.cells, next(places)
        cell = int(cells[learned.probabilities[cells, place].argmax()])
        share, many = float(learned.probabilities[cell, place]), int(counts[place])
        of = f"of which there {'is' if many == 1 else 'are'} {many or 'no'} label{'s' if many != 1 else ''}"
        words = f"may be {_named(names, int(learned.classes[place]))} ({share:.2f}), {of}"
        found.append(Suggestion(cell, words, share))
        free.take(cell)
    return found
