r"""A linear softmax head solved to convergence.

.. math:: \min_{W,b}\; \frac1n\sum_i \ell(W^\top x_i + b,\, y_i) + \frac{\lambda v}2\lVert W\rVert^2,
          \qquad v = \frac1n\sum_i\lVert x_i-\bar x\rVert^2

so that lambda means the same whatever the scale of the descriptors. Where images have weights, these means are
weighted ones: an image of weight two counts as two. A target may be shares of several classes; its loss is then the
mean of theirs. The bias is free, so the descriptors may be centred. The optimal W lies in their span: with the
eigenvectors of the smaller Gram matrix (images x images, the dual, when there are fewer images than features; features
x features otherwise) the problem is rotated, without any approximation, into at most min(n, d) coordinates z whose
second moment is diagonal. There the Hessian is bounded by a diagonal matrix (Boehning, 1992), which preconditions
L-BFGS; the primal weights come out by the same rotation.

The rotation knows neither labels nor weights and changes no solution, so one serves every split of a set of images. The
folds of a cross-validation and the head itself are problems on the same coordinates and are solved side by side: a
matrix product with six times as many columns costs much less than six products.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from sklearn.model_selection import StratifiedKFold
from torch import Tensor

from mgcap.errors import DataError
from mgcap.threads import side_by_side

#: Values of lambda that cross-validation tries.
LAMBDAS = (1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-9)
#: Used where a class has too few images to cross-validate.
DEFAULT_LAMBDA = 1e-7
#: Largest entry of the preconditioned gradient at which a solution counts: of a fold, of the head itself.
FOLD_TOLERANCE, FINAL_TOLERANCE = 1e-5, 1e-7
#: Below this mean of p (1 - p) the preconditioner does not follow.
LEAST_CURVATURE = 1e-3
#: Columns (or rows) of the descriptors that the Gram matrix takes in at a time, so that they may lie on disk.
GRAM_COLUMNS = 8192
#: What is said of descriptors that no head can be made from.
NOT_FINITE = "the descriptors of some images are not finite, so no head can be made from them"
#: Coordinates times classes below which a problem takes one thread; and rows of a Gram matrix.
SMALL, SMALL_GRAM = 1_000_000_000, 4096
#: Directions with less than this share of the largest variance are rounding.
RANK_TOLERANCE = 1e-7


@dataclass(frozen=True)
class LinearHead:
    """A solved head: ``logits = x @ weight.T + bias``."""

    weight: Tensor  #: [K, d]
    bias: Tensor  #: [K]
    regularisation: float
    cv_loss: dict[float, float]  #: mean held-out loss for each strength that was tried
    cv_accuracy: dict[float, float]


@dataclass(frozen=True)
class Rotated:
    """Centred descriptors in their principal coordinates, inner products kept."""

    coordinates: Tensor  #: [n, r]
    variances: Tensor  #: [r], the diagonal of z^T z
    mean: Tensor  #: [d], what was taken off
    basis: Tensor | None  #: [d, r]; None in the dual, where x^T v / sqrt(s) stands for it

    def unrotate(self, weights: Tensor, descriptors: Tensor) -> tuple[Tensor, Tensor]:
        """Weights ``[K, d]`` and bias for the descriptors that were rotated, of those for coordinates, bias last."""
        if self.basis is not None:
            primal = self.basis @ weights[:-1]
        else:
            # x centred, z = v sqrt(s), and x^T v / sqrt(s) has orthonormal columns: w = x^T z w_z / s
            dual = self.coordinates @ (weights[:-1] / self.variances.unsqueeze(1))
            primal = descriptors.T @ dual - torch.outer(self.mean, dual.sum(0))
        return primal.T.contiguous(), weights[-1] - self.mean @ primal


def rotate(descriptors: Tensor, mean: Tensor | None = None) -> Rotated:
    """Centre and rotate ``[n, d]`` descriptors into at most min(n, d) coordinates without loss.

    Args:
        descriptors: In memory or mapped from disk.
        mean: What is taken off, their mean without; it matters where a head's bias is not free.

    Raises:
        DataError: If they are not finite.
    """
    count, length = descriptors.shape
    mean = descriptors.mean(0) if mean is None else mean
    dual = count <= length
    if dual:
        gram = torch.zeros(count, count, dtype=torch.float64)
        for start in range(0, length, GRAM_COLUMNS):
            centred = descriptors[:, start : start + GRAM_COLUMNS] - mean[start : start + GRAM_COLUMNS]
            gram += centred @ centred.T
    else:
        gram = torch.zeros(length, length, dtype=torch.float64)
        for rows in torch.split(descriptors, GRAM_COLUMNS):
            centred = rows - mean
            gram += centred.T @ centred
    if not bool(gram.sum().isfinite()):  # one number that is not finite spoils its column, and so every product
        raise DataError(NOT_FINITE)
    if len(gram) <= SMALL_GRAM:
        ((values, vectors),) = side_by_side(torch.linalg.eigh, [gram])
    else:
        values, vectors = torch.linalg.eigh(gram)
    keep = values > RANK_TOLERANCE * values[-1].clamp_min(1e-30)
    values, vectors = values[keep], vectors[:, keep].to(descriptors.dtype)
    if dual:
        coordinates = vectors * values.sqrt().to(descriptors.dtype)
    else:
        coordinates = torch.cat([(rows - mean) @ vectors for rows in torch.split(descriptors, GRAM_COLUMNS)])
    return Rotated(coordinates, values.to(descriptors.dtype), mean, None if dual else vectors)


def _solve(
    z: Tensor, targets: Tensor, share: Tensor, variances: Tensor, strength: float, start: Tensor, tolerance: float
) -> Tensor:
    """Solve one problem.

    Args:
        z: Coordinates ``[n, r]``.
        targets: Shares of the classes ``[n, K]``.
        share: The weight of each image; the sum is one.
        variances: Mean square of each coordinate.
        strength: Lambda times v.
        start: Weights to begin with, ``[r + 1, K]``, the bias last.
        tolerance: Largest entry of the preconditioned gradient.

    Returns:
        Weights like ``start``.
    """
    # The Hessian's diagonal with the mean of p (1 - p) at the start in place of each image's own; in scaled variables
    # it is near the identity.
    p = (z @ start[:-1] + start[-1]).softmax(1)
    curvature = (share @ (p * (1 - p))).clamp_min(LEAST_CURVATURE)
    scales = torch.cat((variances.unsqueeze(1) * curvature + strength, curvature.unsqueeze(0))).rsqrt()
    scaled = start / scales
    scaled.grad = torch.empty_like(scaled)
    optimiser = torch.optim.LBFGS(
        [scaled],
        max_iter=1000,
        history_size=10,
        tolerance_grad=tolerance,
        tolerance_change=1e-13,
        line_search_fn="strong_wolfe",
    )

    @torch.no_grad()
    def loss() -> float:
        weights = scaled * scales
        each = (z @ weights[:-1] + weights[-1]).log_softmax(1)
        value = strength / 2 * weights[:-1].square().sum() - share @ (each * targets).sum(1)
        slope = each.exp_().sub_(targets).mul_(share.unsqueeze(1))
        scaled.grad = torch.cat((z.T @ slope + strength * weights[:-1], slope.sum(0, keepdim=True))).mul_(scales)
        return float(value)

    optimiser.step(loss)  # type: ignore[no-untyped-call]
    return scaled * scales


@dataclass(frozen=True)
class Solution:
    """A head in the coordinates of a :class:`HeadSolver`."""

    weights: Tensor  #: [r + 1, K], the bias last
    regularisation: float
    cv_loss: dict[float, float]  #: mean held-out loss for each strength that was tried
    cv_accuracy: dict[float, float]
    cv_logits: Tensor | None  #: [n, K]: held-out logits of the training images at the chosen strength


class HeadSolver:
    """Solves heads on subsets of the same images, which share the Gram matrix and its rotation.

    Args:
        descriptors: ``[n, d]``, in memory or mapped from disk.
        targets: Class indices, or shares of the classes ``[n, K]``.
        classes: How many classes there are.
        weights: What each image counts, a positive number; all the same without.
        folds: Which fold of a cross-validation over all of them each is held out in; drawn at random without.
    """

    def __init__(
        self,
        descriptors: Tensor,
        targets: Sequence[int] | Tensor,
        classes: int,
        weights: Sequence[float] | None = None,
        folds: Sequence[int] | None = None,
    ) -> None:
        self.descriptors = descriptors
        shares = torch.as_tensor(targets if isinstance(targets, Tensor) else list(targets))
        self.targets = (F.one_hot(shares, classes) if shares.ndim == 1 else shares).to(descriptors.dtype)
        self.classes = classes
        self.folds = None if folds is None else torch.as_tensor(list(folds))
        self.weights = None if weights is None else torch.as_tensor(list(weights), dtype=descriptors.dtype)
        self.rotated = rotate(descriptors)

    def solve(
        self,
        members: Sequence[int] | None = None,
        strengths: Sequence[float] = LAMBDAS,
        folds: int = 5,
        seed: int = 0,
    ) -> Solution:
        """Fit a head on some of the images; with several strengths, choose one by cross-validation on these alone.

        Args:
            members: Indices of the training images, all by default; every class must occur.
            strengths: Values of lambda to try.
            folds: Folds of the cross-validation, fewer where a class has fewer images.
            seed: Seed of the folds.
        """
        chosen = torch.arange(len(self.targets)) if members is None else torch.as_tensor(list(members))
        z, t = self.rotated.coordinates[chosen], self.targets[chosen]
        y = t.argmax(1)
        w = torch.ones(len(t), dtype=z.dtype) if self.weights is None else self.weights[chosen]
        share = w / w.sum()
        v = max(float(((z - share @ z).square().sum(1) * share).sum()), torch.finfo(z.dtype).tiny)
        path, parts = self._plan(y, strengths, folds, seed, None if self.folds is None else self.folds[chosen])
        variances = share @ z.square()
        start = torch.zeros(z.shape[1] + 1, self.classes, dtype=z.dtype)

        def follow(fold: int) -> list[Tensor]:
            """Weights of a fold for each strength, each solution the start of the next."""
            train = parts[fold][0]
            own = z[train], t[train], w[train] / w[train].sum(), variances
            found = [start]
            for strength in path:
                found.append(_solve(*own, strength * v, found[-1], FOLD_TOLERANCE))
            return found[1:]

        def finish(strength: float, start: Tensor) -> Tensor:
            return _solve(z, t, share, variances, strength * v, start, FINAL_TOLERANCE)

        run = side_by_side if z.numel() * self.classes < SMALL else lambda function, items: list(map(function, items))
        if not parts:
            rough = run(lambda s: _solve(z, t, share, variances, s * v, start, FOLD_TOLERANCE), path)
            (final,) = run(lambda s: finish(s, rough[0]), path)
            return Solution(final, path[0], {}, {}, None)
        followed = run(follow, range(len(parts)))
        held_out: dict[float, Tensor] = {}
        for number, strength in enumerate(path):
            logits = held_out[strength] = torch.empty(len(y), self.classes, dtype=z.dtype)
            for (_, test), weights in zip(parts, followed, strict=True):
                logits[test] = z[test] @ weights[number][:-1] + weights[number][-1]
        losses = {s: float(F.cross_entropy(logits, t, reduction="none") @ share) for s, logits in held_out.items()}
        accuracies = {s: float(w[logits.argmax(1) == y].sum() / w.sum()) for s, logits in held_out.items()}
        best = min(losses, key=lambda s: losses[s])
        mean = torch.stack([weights[path.index(best)] for weights in followed]).mean(0)
        (final,) = run(lambda s: finish(s, mean), [best])
        return Solution(final, best, losses, accuracies, held_out[best])

    def _plan(
        self, y: Tensor, strengths: Sequence[float], folds: int, seed: int, given: Tensor | None
    ) -> tuple[list[float], list[tuple[Tensor, Tensor]]]:
        """Strengths from strong to weak, for each solution starts the next, and train and test parts of the folds."""
        path = sorted(strengths, reverse=True)
        smallest = int(torch.bincount(y, minlength=self.classes).min())
        if len(path) == 1:
            return path, []
        if smallest < 2:
            return [DEFAULT_LAMBDA], []
        if given is not None:
            return path, [
                ((given != fold).nonzero()[:, 0], (given == fold).nonzero()[:, 0]) for fold in set(given.tolist())
            ]
        chooser = StratifiedKFold(min(folds, smallest), shuffle=True, random_state=seed)
        return path, [(torch.as_tensor(a), torch.as_tensor(b)) for a, b in chooser.split(y, y)]

    def logits(self, solution: Solution, members: Sequence[int]) -> Tensor:
        """Logits of some of the images."""
        z = self.rotated.coordinates[torch.as_tensor(list(members))]
        return z @ solution.weights[:-1] + solution.weights[-1]

    def head(self, solution: Solution) -> LinearHead:
        """The head for descriptors."""
        weight, bias = self.rotated.unrotate(solution.weights, self.descriptors)
        return LinearHead(weight, bias, solution.regularisation, solution.cv_loss, solution.cv_accuracy)


def solve_head(
    descriptors: Tensor,
    targets: Sequence[int] | Tensor,
    classes: int,
    strengths: Sequence[float] = LAMBDAS,
    folds: int = 5,
    seed: int = 0,
    weights: Sequence[float] | None = None,
) -> LinearHead:
    """Fit one head on all of the images, see :meth:`HeadSolver.solve`."""
    solver = HeadSolver(descriptors, targets, classes, weights)
    return solver.head(solver.solve(None, strengths, folds, seed))
