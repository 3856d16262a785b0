r"""A linear softmax head solved to convergence.

.. math:: \min_{W,b}\; \frac1n\sum_i \ell(W^\top x_i + b,\, y_i) + \frac{\lambda v}2\lVert W\rVert^2,
          \qquad v = \frac1n\sum_i\lVert x_i-\bar x\rVert^2

so that lambda means the same whatever the scale of the descriptors. The bias is free, so the descriptors may be
centred. The optimal W lies in their span: with the eigenvectors of the smaller Gram matrix (images x images, the dual,
when there are fewer images than features; features x features otherwise) the problem is rotated, without any
approximation, into at most min(n, d) coordinates z whose second moment is diagonal. There the Hessian is bounded by a
diagonal matrix (Boehning, 1992), which preconditions L-BFGS; the primal weights come out by the same rotation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from sklearn.model_selection import StratifiedKFold
from torch import Tensor

#: Values of lambda that cross-validation tries.
LAMBDAS = (1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-9)
#: Used where a class has too few images to cross-validate.
DEFAULT_LAMBDA = 1e-7
#: Largest entry of the preconditioned gradient at which a solution counts: of a fold, of the head itself.
FOLD_TOLERANCE, FINAL_TOLERANCE = 1e-6, 1e-7
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


def rotate(descriptors: Tensor) -> Rotated:
    """Centre and rotate ``[n, d]`` descriptors into at most min(n, d) coordinates without loss."""
    count, length = descriptors.shape
    mean = descriptors.mean(0)
    centred = descriptors - mean
    dual = count <= length
    gram = centred @ centred.T if dual else centred.T @ centred
    values, vectors = torch.linalg.eigh(gram.double())
    keep = values > RANK_TOLERANCE * values[-1].clamp_min(1e-30)
    values, vectors = values[keep], vectors[:, keep].to(descriptors.dtype)
    coordinates = vectors * values.sqrt().to(descriptors.dtype) if dual else centred @ vectors
    return Rotated(coordinates, values.to(descriptors.dtype), mean, None if dual else vectors)


def _solve(
    z: Tensor, y: Tensor, variances: Tensor, classes: int, strength: float, start: Tensor | None, tolerance: float
) -> Tensor:
    """Weights ``[r + 1, K]`` in rotated coordinates, the bias last."""
    # Boehning's bound: the Hessian is below z^T z / 2n + strength; in scaled variables it is near the identity.
    scale = (variances / (2 * len(z)) + strength).rsqrt().unsqueeze(1)
    scales = torch.cat((scale, torch.full((1, 1), 2.0**0.5, dtype=z.dtype)))
    begin = torch.zeros(z.shape[1] + 1, classes, dtype=z.dtype) if start is None else start / scales
    scaled = begin.clone().requires_grad_()
    optimiser = torch.optim.LBFGS(
        [scaled],
        max_iter=1000,
        history_size=20,
        tolerance_grad=tolerance,
        tolerance_change=1e-13,
        line_search_fn="strong_wolfe",
    )

    def loss() -> Tensor:
        optimiser.zero_grad()
        weights = scaled * scales
        value = F.cross_entropy(z @ weights[:-1] + weights[-1], y) + strength / 2 * weights[:-1].square().sum()
        value.backward()  # type: ignore[no-untyped-call]
        return value

    optimiser.step(loss)  # type: ignore[no-untyped-call]
    return (scaled * scales).detach()


def solve_head(
    descriptors: Tensor,
    targets: Sequence[int],
    classes: int,
    strengths: Sequence[float] = LAMBDAS,
    folds: int = 5,
    seed: int = 0,
) -> LinearHead:
    """Fit the head; with several strengths, choose one by cross-validation on these images alone.

    Args:
        descriptors: ``[n, d]``.
        targets: Class indices; every class must occur.
        classes: How many classes there are.
        strengths: Values of lambda to try.
        folds: Folds of the cross-validation, fewer where a class has fewer images.
        seed: Seed of the folds.
    """
    y = torch.as_tensor(list(targets))
    rotated = rotate(descriptors)
    z = rotated.coordinates
    scale = max(float(rotated.variances.sum()) / len(y), torch.finfo(z.dtype).tiny)
    path = sorted(strengths, reverse=True)  # from strong to weak, each solution starts the next
    smallest = int(torch.bincount(y, minlength=classes).min())
    losses: dict[float, float] = {}
    accuracies: dict[float, float] = {}
    best = path[0] if len(path) == 1 else DEFAULT_LAMBDA
    if len(path) > 1 and smallest >= 2:
        chooser = StratifiedKFold(min(folds, smallest), shuffle=True, random_state=seed)
        losses, accuracies = dict.fromkeys(path, 0.0), dict.fromkeys(path, 0.0)
        for train_index, test_index in chooser.split(z, y):
            train, test = torch.as_tensor(train_index), torch.as_tensor(test_index)
            variances = rotated.variances * (len(train) / len(y))
            weights: Tensor | None = None
            for strength in path:
                weights = _solve(z[train], y[train], variances, classes, strength * scale, weights, FOLD_TOLERANCE)
                logits = z[test] @ weights[:-1] + weights[-1]
                losses[strength] += float(F.cross_entropy(logits, y[test], reduction="sum")) / len(y)
                accuracies[strength] += int((logits.argmax(1) == y[test]).sum()) / len(y)
        best = min(losses, key=lambda s: losses[s])
    solution: Tensor | None = None
    for strength in (s for s in path if s > best):
        solution = _solve(z, y, rotated.variances, classes, strength * scale, solution, FOLD_TOLERANCE)
    solution = _solve(z, y, rotated.variances, classes, best * scale, solution, FINAL_TOLERANCE)
    weight = _primal(descriptors, rotated, solution[:-1])
    return LinearHead(weight.T.contiguous(), solution[-1] - rotated.mean @ weight, best, losses, accuracies)


def _primal(descriptors: Tensor, rotated: Rotated, weights: Tensor) -> Tensor:
    """Weights ``[d, K]`` for descriptors from weights ``[r, K]`` for coordinates."""
    if rotated.basis is not None:
        return rotated.basis @ weights
    # With x centred, z = v sqrt(s) and x^T v / sqrt(s) has orthonormal columns: w = x^T v s^{-1/2} w_z = x^T z w_z / s
    dual = rotated.coordinates @ (weights / rotated.variances.unsqueeze(1))
    return descriptors.T @ dual - torch.outer(rotated.mean, dual.sum(0))
