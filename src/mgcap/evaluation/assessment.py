"""How right a map is: counts with their intervals, and estimates from a stratified random sample.

The estimates are those of Olofsson et al. (2014), "Good practices for estimating area and assessing accuracy of land
change", Remote Sensing of Environment 148: 42-57. Strata that are not the classes of the map, as where the sample was
drawn from another one, are treated as in Stehman (2014), International Journal of Remote Sensing 35: 4923-4939; where
they are the classes of the map both give the same numbers. Samples are small parts of a map, so that there is no
correction for finite populations.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from mgcap.evaluation.metrics import wilson_interval
from mgcap.typing import Array

#: Standard errors on both sides of an estimate that make a 95 % interval.
Z = 1.959964


@dataclass(frozen=True)
class Estimate:
    """A number with its 95 % confidence interval, and its standard error where that is known."""

    value: float
    low: float
    high: float
    error: float | None = None


@dataclass(frozen=True)
class Accuracy:
    """Accuracies; a class without units has none.

    Attributes:
        overall: Share of what is right.
        known: Share of what is right where the map is not unknown; None if it never is.
        users: Of what the map calls a class, how much is of it.
        producers: Of what is of a class, how much the map calls so.
    """

    overall: Estimate
    known: Estimate | None
    users: tuple[Estimate | None, ...]
    producers: tuple[Estimate | None, ...]


@dataclass(frozen=True)
class Stratified(Accuracy):
    """Accuracies by area, and areas.

    Attributes:
        total: Area of the strata with units, for which all of this holds.
        areas: Of each class, adjusted for the errors of the map; None for what is unknown.
        proportions: ``[map, reference]``: shares of the area.
    """

    total: float
    areas: tuple[Estimate | None, ...]
    proportions: Array


def confusion_matrix(mapped: Array, truth: Array, count: int) -> Array:
    """Numbers of units ``[map, reference]`` of ``count`` classes."""
    return np.bincount(mapped * count + truth, minlength=count * count).reshape(count, count)


def count_accuracy(confusion: Array, unknown: int | None = None) -> Accuracy:
    """Accuracies of the units themselves, with Wilson's intervals.

    Args:
        confusion: ``[map, reference]``.
        unknown: The class of the map that says nothing, and so is never right.
    """
    right, mapped, truth = confusion.diagonal(), confusion.sum(1), confusion.sum(0)
    users = [_share(*pair) for pair in zip(right, mapped, strict=True)]
    known = None
    if unknown is not None:
        users[unknown] = None
        known = _share(right.sum(), mapped.sum() - mapped[unknown]) if mapped[unknown] else None
    overall = _share(right.sum(), mapped.sum())
    assert overall is not None
    producers = tuple(_share(*pair) for pair in zip(right, truth, strict=True))
    return Accuracy(overall, known, tuple(users), producers)


def _share(right: int, count: int) -> Estimate | None:
    if not count:
        return None
    share = float(right / count)
    return Estimate(share, *wilson_interval(share, int(count)))


def estimate_stratified(
    mapped: Array, truth: Array, strata: Array, sizes: Array, count: int, unknown: int | None = None
) -> Stratified:
    """Accuracies and areas from a stratified random sample.

    Args:
        mapped: The class of each unit on the map.
        truth: The class of each unit in the reference.
        strata: The stratum of each unit.
        sizes: Area of each stratum; one without units is left out.
        count: Number of classes.
        unknown: The class of the map that says nothing, and so is never right.
    """
    design = _Design(strata, sizes)
    every, right = np.ones(len(mapped)), mapped == truth
    users, producers = [], []
    areas: list[Estimate | None] = []
    for number in range(count):
        own, found = mapped == number, truth == number
        users.append(design.ratio(own & found, own) if number != unknown else None)
        producers.append(design.ratio(own & found, found))
        area = design.ratio(found, every)
        assert area is not None
        areas.append(_scaled(area, design.total) if number != unknown else None)
    overall = design.ratio(right, every)
    assert overall is not None
    some_unknown = unknown is not None and bool((mapped == unknown).any())
    return Stratified(
        overall=overall,
        known=design.ratio(right, mapped != unknown) if some_unknown else None,
        users=tuple(users),
        producers=tuple(producers),
        total=design.total,
        areas=tuple(areas),
        proportions=np.bincount(mapped * count + truth, design.weights, count * count).reshape(count, count)
        / design.total,
    )


def _scaled(share: Estimate, total: float) -> Estimate:
    assert share.error is not None
    return Estimate(total * share.value, total * share.low, total * share.high, total * share.error)


class _Design:
    """Units of a stratified random sample, and what each stands for."""

    def __init__(self, strata: Array, sizes: Array) -> None:
        self.strata = strata
        self.counts = np.bincount(strata, minlength=len(sizes))
        self.sizes = np.where(self.counts > 0, sizes, 0.0)
        self.total = float(self.sizes.sum())
        self.weights = (sizes / np.maximum(self.counts, 1))[strata]  #: area that a unit stands for

    def ratio(self, y: Array, x: Array) -> Estimate | None:
        """The area where ``y`` is true for each where ``x`` is (Stehman 2014, equations 27 and 28); None for none."""
        below = float(self.weights @ x)
        if below == 0:
            return None
        value = float(self.weights @ y) / below
        rest = y - value * np.asarray(x, np.float64)
        length = len(self.sizes)
        mean = np.bincount(self.strata, rest, length) / np.maximum(self.counts, 1)
        squares = np.bincount(self.strata, (rest - mean[self.strata]) ** 2, length) / np.maximum(self.counts - 1, 1)
        error = math.sqrt(float((self.sizes**2 * squares / np.maximum(self.counts, 1)).sum())) / below
        return Estimate(value, max(0.0, value - Z * error), min(1.0, value + Z * error), error)


def allocate(sizes: Array, units: Array, minimum: int, total: int | None = None) -> Array:
    """How many units to draw of each stratum: a minimum, and of the rest a share by area (Olofsson et al., 5.1).

    Args:
        sizes: Area of each stratum.
        units: How many units each has; no more are drawn.
        minimum: For each.
        total: For all together; by default each stratum has the minimum.
    """
    least = np.minimum(minimum, units)
    if total is None or total <= least.sum():
        return least
    wanted = least.astype(np.float64)
    open_ones = units > least
    left = float(total)
    while open_ones.any():
        left = total - wanted[~open_ones].sum()
        shares = np.where(open_ones, left * sizes / sizes[open_ones].sum(), wanted)
        low, high = open_ones & (shares < least), open_ones & (shares > units)
        settled = low if low.any() else high
        if not settled.any():
            wanted = shares
            break
        wanted[settled] = (least if low.any() else units)[settled]
        open_ones &= ~settled
    return _rounded(wanted, units, min(total, int(units.sum())))


def _rounded(wanted: Array, units: Array, total: int) -> Array:
    """Whole numbers that add up, by largest remainders."""
    whole = np.floor(wanted + 1e-9).astype(np.int64)
    for number in np.argsort(whole - wanted, kind="stable")[: max(0, total - int(whole.sum()))]:
        whole[number] += whole[number] < units[number]
    return whole
