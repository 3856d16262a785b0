r"""The head that few labels make, with what it says of each of them while it was held out.

It is the head of :mod:`mgcap.training.softmax`. Where there was a head before, its logits are added:

.. math:: \min_{W,b}\; \frac1n\sum_i \ell(o_i + W^\top z_i + b,\, y_i) + \frac{\lambda v}2\lVert W\rVert^2
          + \frac{\beta}2\lVert b\rVert^2

so that without labels everything is as it was, and each label moves it. The bias is free without such a head, and
otherwise held (:math:`\beta` is one over the number of labels times a variance), as one label alone would else make
everything its class.

People wait for it. So all folds are columns of one problem, which is solved at once: many small ones would spend their
time between products. It takes one thread: two of them would wait for each other on a busy machine.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from mgcap.labelling.lbfgs import minimise
from mgcap.threads import one_thread
from mgcap.training.softmax import LEAST_CURVATURE, Rotated, rotate
from mgcap.typing import Array

#: Values of lambda that cross-validation tries for a hundred labels; for n of them they are times 100 / n, as what is
#: known of weights beforehand does not grow with the labels.
STRENGTHS = (1e-2, 2e-3, 4e-4)
#: Used where there is no cross-validation.
USUAL = 1e-3
#: How far the bias may go from a head that was there before: the variance of its normal distribution.
BIAS_VARIANCE = 4.0
#: Largest entry of the preconditioned gradient at which a solution counts: of the folds, of the head itself.
FOLD_TOLERANCE, TOLERANCE = 3e-4, 1e-6


@dataclass(frozen=True)
class Problems:
    """Heads on the same coordinates for different shares of the images.

    Attributes:
        z: Coordinates ``[n, r]``.
        targets: ``[n, K]``, zero and one.
        shares: ``[n, F]``: what each image counts in each problem; columns sum to one.
        strength: Lambda times v.
        variances: ``[r]``: mean squares of the coordinates.
        offset: Logits ``[n, K]`` that are added; none without.
        bias: Strength that holds the bias.
    """

    z: Tensor
    targets: Tensor
    shares: Tensor
    strength: float
    variances: Tensor
    offset: Tensor | None = None
    bias: float = 0.0

    def logits(self, weights: Tensor) -> Tensor:
        """``[n, F, K]`` of weights ``[r + 1, F, K]``."""
        found = torch.addmm(weights[-1].flatten(), self.z, weights[:-1].flatten(1)).view(
            len(self.z), *weights.shape[1:]
        )
        return found if self.offset is None else found + self.offset.unsqueeze(1)

    def solve(self, start: Tensor, tolerance: float) -> Tensor:
        """Weights ``[r + 1, F, K]``, the bias last, from weights to begin with."""
        held = torch.tensor([self.strength] * len(self.variances) + [self.bias]).view(-1, 1, 1)
        p = self.logits(start).softmax(2)
        curvature = (self.shares.unsqueeze(2) * p * (1 - p)).sum(0, keepdim=True).clamp_min(LEAST_CURVATURE)
        squares = torch.cat((self.variances, torch.ones(1)))
        scales = (squares.view(-1, 1, 1) * curvature + held).rsqrt()
        targets, shares = self.targets.unsqueeze(1), self.shares.unsqueeze(2)

        def loss(scaled: Tensor) -> tuple[Tensor, Tensor]:
            weights = scaled * scales
            each = self.logits(weights).log_softmax(2)
            pull = held * weights
            value = (pull * weights).sum((0, 2), keepdim=True, dtype=torch.float64) / 2
            value -= (shares * targets * each).sum((0, 2), keepdim=True, dtype=torch.float64)
            slope = each.exp_().sub_(targets).mul_(shares)
            gradient = (self.z.T @ slope.flatten(1)).view(-1, *slope.shape[1:])
            return value, torch.cat((gradient, slope.sum(0, keepdim=True))).add_(pull).mul_(scales)

        return minimise(loss, start / scales, tolerance) * scales


@dataclass(frozen=True, eq=False)
class Solved:
    """A head, and what was said of labels that it had not seen.

    Attributes:
        weight: ``[K, p]``.
        bias: ``[K]``.
        held_out: Logits ``[n, K]`` for each division into folds that there is.
        strength: The chosen lambda, for a hundred labels.
    """

    weight: Tensor
    bias: Tensor
    held_out: list[Tensor | None]
    strength: float


def solve(
    vectors: Tensor,
    targets: Array,
    classes: int,
    centre: Tensor,
    spread: float,
    folds: list[Array | None],
    prior: tuple[Tensor, Tensor] | None = None,
) -> Solved:
    """Solve the head of some labelled vectors.

    Args:
        vectors: ``[n, p]``.
        targets: The class of each, from zero.
        classes: How many there are; without a prior each occurs.
        centre: What is taken off the vectors, ``[p]``.
        spread: The mean square of what vectors are long then.
        folds: Divisions into folds, of which the first that there is chooses the strength.
        prior: Weights and bias of a head that was there before.
    """
    count = len(vectors)
    hot = F.one_hot(torch.from_numpy(targets), classes).float()
    held = 0.0 if prior is None else 1 / (count * BIAS_VARIANCE)
    with one_thread():
        offset = None if prior is None else torch.addmm(prior[1], vectors, prior[0].T)
        return _solve(_Given(rotate(vectors, centre), vectors, hot, spread, offset, held, prior), folds)


@dataclass(frozen=True, eq=False)
class _Given:
    rotated: Rotated
    vectors: Tensor
    hot: Tensor
    spread: float
    offset: Tensor | None
    held: float
    prior: tuple[Tensor, Tensor] | None

    def problems(self, shares: Tensor, strength: float) -> Problems:
        """Problems for shares ``[n, F]``."""
        z = self.rotated.coordinates
        scale = self.spread * 100 / len(z)
        return Problems(
            z,
            self.hot,
            shares,
            strength * scale,
            z.square().mean(0),
            self.offset,
            self.held,
        )

    def start(self, count: int) -> Tensor:
        return torch.zeros(self.rotated.coordinates.shape[1] + 1, count, self.hot.shape[1])


def _solve(given: _Given, folds: list[Array | None]) -> Solved:
    count = len(given.hot)
    chooser = next((number for number, own in enumerate(folds) if own is not None), None)
    held_out: list[Tensor | None] = [None] * len(folds)
    best, weights = USUAL, given.start(1)
    if chooser is not None:
        best, held_out[chooser], weights = _choose(given, folds[chooser])  # type: ignore[arg-type]
    for number, own in enumerate(folds):
        if own is not None and number != chooser:
            shares, _ = _shares(own)
            problems = given.problems(shares, best)
            found = problems.solve(weights.expand(-1, shares.shape[1], -1), FOLD_TOLERANCE)
            held_out[number] = _held_out(problems.logits(found), own)
    whole = given.problems(torch.full((count, 1), 1 / count), best)
    final = whole.solve(weights, TOLERANCE)[:, 0]
    weight, bias = given.rotated.unrotate(final, given.vectors)
    if given.prior is not None:
        weight, bias = weight + given.prior[0], bias + given.prior[1]
    return Solved(weight, bias, held_out, best)


def _shares(folds: Array) -> tuple[Tensor, Tensor]:
    """What each image counts while each fold is held out, ``[n, F]``, and which is held out."""
    numbers = np.unique(folds)
    out = torch.from_numpy(folds[:, None] == numbers)
    inside = (~out).float()
    return inside / inside.sum(0), out


def _held_out(logits: Tensor, folds: Array) -> Tensor:
    """Of ``[n, F, K]`` for each image those of the problem that it was not in."""
    own = np.unique(folds, return_inverse=True)[1].reshape(-1)
    return logits[torch.arange(len(logits)), torch.from_numpy(own)]


def _choose(given: _Given, folds: Array) -> tuple[float, Tensor, Tensor]:
    """The strength with the least loss, logits while images were held out, and weights to begin with.

    From strong to weak, each solution the start of the next, until the loss rises.
    """
    shares, out = _shares(folds)
    # a class that occurs in one fold only cannot be learnt without it: whatever the strength, that says nothing
    elsewhere = ((~out).float().T @ given.hot)[out.float().argmax(1)]
    counted = (elsewhere * given.hot).sum(1) > 0
    if given.offset is not None or not bool(counted.any()):
        counted = torch.ones_like(counted)
    weights, least = given.start(shares.shape[1]), float("inf")
    best = STRENGTHS[0], torch.empty(0), weights
    for strength in STRENGTHS:
        problems = given.problems(shares, strength)
        weights = problems.solve(weights, FOLD_TOLERANCE)
        logits = _held_out(problems.logits(weights), folds)
        loss = float(-(logits.log_softmax(1) * given.hot).sum(1)[counted].mean())
        if loss >= least:
            break
        least, best = loss, (strength, logits, weights.mean(1, keepdim=True))
    return best
