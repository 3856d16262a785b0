"""From a few labelled cells to a map of all of them: a head, how right it is, and what is unlike all that was labelled.

Neighbouring cells are alike, so blocks of land are held out together for the accuracy; that of random folds stands
beside it, to be compared. Suggestions ask for hard cells, and as they are these would say far too little: each label
stands for as many cells of the map as are about as clear as it was while it was held out (post-stratification).
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from mgcap.errors import DataError
from mgcap.evaluation.assessment import Estimate
from mgcap.evaluation.spatial import FOLDS, block_folds, block_numbers, blocked_share
from mgcap.inference.unknown import ALPHA
from mgcap.labelling.head import Solved, solve
from mgcap.labelling.likeness import TOGETHER, Nearest, in_parts
from mgcap.labelling.pool import Pool
from mgcap.threads import one_thread
from mgcap.typing import Array

#: The side of a block in tiles, unless another is asked for.
BLOCK_TILES = 4
#: Labels below which nothing is said of the accuracy, and of what is unknown.
LEAST_LABELS, LEAST_KNOWN = 8, 20
#: Strata of how clear cells are, labels in each at least, and cells of a large pool that are looked at.
STRATA, LEAST_IN_STRATUM, SOME = 5, 5, 8192
#: Labelled cells that the limit of what is unknown is told from at most, and cosines that are in memory at a time.
LIMIT_LABELS, AT_ONCE = 2048, 1 << 22


@dataclass(frozen=True, eq=False)
class Prior:
    """A head that was there before the labels, for vectors of the pool.

    Attributes:
        weight: ``[K, p]``, a row for each class of the project; zero for those that it does not know.
        bias: ``[K]``.
    """

    weight: Tensor
    bias: Tensor


@dataclass(frozen=True, eq=False)
class Learned:
    """What labels say of all cells of a pool.

    Attributes:
        classes: Numbers of the classes that the head knows, ascending: the columns of the probabilities.
        weight: ``[k, p]``.
        bias: ``[k]``.
        probabilities: ``[n, k]`` of all cells.
        distance: ``[n]``: one minus the cosine with the nearest labelled cell; two where there is none.
        limit: Beyond which distance a cell is unknown; infinite where there are too few labels to say.
        estimate: Accuracy where blocks of land are held out; None if it cannot be said yet.
        random: The same with random folds, for comparison.
        held_out: ``[m, k]``: probabilities of the labelled cells while they were held out; NaN where they never were.
        cells: ``[m]``: those that are labelled, ascending.
        targets: ``[m]``: positions in ``classes``.
        seconds: What it took.
    """

    classes: Array
    weight: Tensor
    bias: Tensor
    probabilities: Array
    distance: Array
    limit: float
    estimate: Estimate | None
    random: Estimate | None
    held_out: Array
    cells: Array
    targets: Array
    seconds: float

    @cached_property
    def classes_of_cells(self) -> Array:
        """``[n]``: the number of the most probable class."""
        found: Array = self.classes[self.probabilities.argmax(1)]
        return found

    @cached_property
    def unknown(self) -> Array:
        """``[n]``: which cells are unlike all that was labelled."""
        found: Array = self.distance > self.limit
        return found

    @cached_property
    def counts(self) -> dict[int, int]:
        """How many labels each class has."""
        counts = np.bincount(self.targets, minlength=len(self.classes))
        return {int(number): int(count) for number, count in zip(self.classes, counts, strict=True)}


@dataclass(frozen=True, eq=False)
class _Labels:
    """Labels in one order, whatever that they were given in."""

    cells: Array
    targets: Array
    classes: Array
    prior: tuple[Tensor, Tensor] | None


class Learner:
    """Learns from labels of a pool; what it found last time makes the next time faster, and changes nothing.

    Args:
        pool: The cells.
        block: Side of the blocks that are held out together, in the unit of the pool's places; four tiles without.
        alpha: Share of the labelled cells that would be unknown while they are held out.
        seed: Of the folds.
    """

    def __init__(self, pool: Pool, block: float | None = None, alpha: float = ALPHA, seed: int = 0) -> None:
        self.pool, self.alpha, self.seed = pool, alpha, seed
        self.block = BLOCK_TILES * pool.tile if block is None else block
        self._blocks = block_numbers(pool.places, self.block)
        self._order = np.random.default_rng(seed).permutation(len(pool))  # of random folds: labels keep their place
        self._some = torch.from_numpy(np.sort(self._order[:SOME]))
        self._nearest = Nearest(pool.likeness)

    def fit(self, labels: Mapping[int, int], prior: Prior | None = None) -> Learned | None:
        """Learn from labels.

        Args:
            labels: Numbers of cells with those of their classes in the project.
            prior: A head that labels correct.

        Returns:
            None if there are fewer than two classes.

        Raises:
            DataError: If there is no such cell or class.
        """
        with one_thread() if len(self.pool) <= TOGETHER else nullcontext():  # small products, and busy machines
            return self._fit(labels, prior)

    def _fit(self, labels: Mapping[int, int], prior: Prior | None) -> Learned | None:
        began = time.perf_counter()
        given = self._given(labels, prior)
        if given is None:
            return None
        folds = self._folds(given)
        solved = self._solve(given, folds)
        held_out = next((logits for logits in solved.held_out if logits is not None), None)
        shape = (len(given.cells), len(given.classes))
        return Learned(
            given.classes,
            solved.weight,
            solved.bias,
            self._probabilities(solved),
            self._nearest.distance(given.cells),
            self._limit(given, folds),
            self._estimate(given, solved, 0),
            self._estimate(given, solved, 1),
            np.full(shape, np.nan, np.float32) if held_out is None else held_out.softmax(1).numpy(),
            given.cells,
            given.targets,
            time.perf_counter() - began,
        )

    def estimate(self, labels: Mapping[int, int], prior: Prior | None = None) -> Estimate | None:
        """The accuracy alone, without a map; None if it cannot be said."""
        given = self._given(labels, prior)
        if given is None or len(given.cells) < LEAST_LABELS:
            return None
        folds = self._folds(given)[0]
        return None if folds is None else self._estimate(given, self._solve(given, [folds]), 0)

    def _given(self, labels: Mapping[int, int], prior: Prior | None) -> _Labels | None:
        cells = np.array(sorted(labels), np.int64)
        numbers = np.array([labels[int(cell)] for cell in cells], np.int64)
        wrong = next((int(cell) for cell in cells if not 0 <= cell < len(self.pool)), None)
        if wrong is not None:
            raise DataError(f"there is no cell {wrong}; there are {len(self.pool)}, from 0")
        if len(numbers) and numbers.min() < 0:
            raise DataError(f"numbers of classes begin at 0, so {int(numbers.min())} is none")
        known = np.zeros(0, np.int64)
        if prior is not None:
            if prior.weight.shape[1] != self.pool.vectors.shape[1]:
                raise DataError("the head that was there before is for other vectors than those of these cells")
            known = np.flatnonzero((prior.weight != 0).any(1).numpy())
        classes = np.union1d(known, numbers).astype(np.int64)
        if len(classes) < 2:
            return None
        before = None
        if prior is not None:
            rows = max(int(classes[-1]) + 1, len(prior.weight))
            weight, bias = torch.zeros(rows, prior.weight.shape[1]), torch.zeros(rows)
            weight[: len(prior.weight)], bias[: len(prior.bias)] = prior.weight.float(), prior.bias.float()
            before = weight[classes], bias[classes]
        return _Labels(cells, np.searchsorted(classes, numbers), classes, before)

    def _folds(self, given: _Labels) -> list[Array | None]:
        """Spatial folds and random ones; None where there are too few labels."""
        if len(given.cells) < LEAST_LABELS:
            return [None, None]
        order = np.lexsort((self._order[given.cells], given.targets))
        drawn = np.empty(len(order), np.int64)
        drawn[order] = np.arange(len(order)) % FOLDS  # one after the other, class by class
        return [block_folds(self._blocks[given.cells], given.targets, FOLDS, self.seed), drawn]

    def _solve(self, given: _Labels, folds: list[Array | None]) -> Solved:
        likeness = self.pool.likeness
        if not len(given.cells):
            assert given.prior is not None
            return Solved(*given.prior, [None] * len(folds), 0.0)
        vectors = self.pool.vectors[torch.from_numpy(given.cells)].float()
        count = len(given.classes)
        return solve(vectors, given.targets, count, likeness.mean, likeness.spread, folds, given.prior)

    def _probabilities(self, solved: Solved) -> Array:
        vectors, found = self.pool.vectors, torch.empty(len(self.pool), len(solved.bias))

        def fill(part: slice) -> None:
            logits = torch.addmm(solved.bias, vectors[part].float(), solved.weight.T)
            torch.softmax(logits, 1, out=found[part])

        in_parts(fill, len(found))
        probabilities: Array = found.numpy()
        return probabilities

    def _estimate(self, given: _Labels, solved: Solved, number: int) -> Estimate | None:
        """The accuracy by one of the divisions into folds, of which the first is the spatial one."""
        logits = solved.held_out[number]
        if logits is None:
            return None
        right = logits.argmax(1).numpy() == given.targets
        clear = logits.softmax(1).amax(1).numpy()
        vectors = self.pool.vectors[self._some].float()
        with one_thread():
            every = torch.addmm(solved.bias, vectors, solved.weight.T).softmax(1).amax(1).numpy()
        blocks = np.arange(len(right)) if number else self._blocks[given.cells]
        return blocked_share(right, blocks, _stand_for(clear, every))

    def _limit(self, given: _Labels, folds: list[Array | None]) -> float:
        """The distance that a share of the labelled cells exceed from those that they were held out from."""
        own = next((found for found in folds if found is not None), None)
        if own is None or len(given.cells) < LEAST_KNOWN:
            return float("inf")
        directions, folds_of = self.pool.likeness.directions(given.cells), torch.from_numpy(own)
        asked = np.sort(self._order[given.cells].argsort(kind="stable")[:LIMIT_LABELS])  # of many, some say as much
        nearest = []
        for part in torch.split(torch.from_numpy(asked), max(1, AT_ONCE // len(directions))):
            cosines = directions[part] @ directions.T
            nearest.append(cosines.masked_fill_(folds_of[part, None] == folds_of, -1.0).amax(1))
        return float(np.quantile(1 - torch.cat(nearest).double().numpy(), 1 - self.alpha))


def _stand_for(clear: Array, every: Array) -> Array:
    """How many cells each label stands for: as many of all as there are for each label in its stratum.

    Args:
        clear: Largest probability of each label while it was held out.
        every: The same of the cells of the map.
    """
    strata = min(STRATA, len(clear) // LEAST_IN_STRATUM)
    edges = np.quantile(every, np.arange(1, max(1, strata)) / max(1, strata))
    while True:
        own, counts = np.digitize(clear, edges), np.bincount(np.digitize(every, edges), minlength=len(edges) + 1)
        labels = np.bincount(own, minlength=len(edges) + 1)
        few = np.flatnonzero(labels < LEAST_IN_STRATUM)
        if not len(few) or not len(edges):
            found: Array = counts[own] / labels[own]
            return found
        edges = np.delete(edges, min(int(few[0]), len(edges) - 1))  # with the next clearer one, if there is one
