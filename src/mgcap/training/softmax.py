r"""A linear softmax head solved to convergence.

.. math:: \min_{W,b}\; \frac1n\sum_i \ell(W^\top x_i + b,\, y_i) + \frac\lambda2\lVert W\rVert^2

The optimal W lies in the span of the images. With the eigenvectors of the smaller Gram matrix (images x images, the
dual, when there are fewer images than features; features x features otherwise) the problem is rotated, without any
approximation, into at most min(n, d) coordinates z whose second moment is diagonal. There the Hessian is bounded by
a diagonal matrix (Boehning, 1992), which preconditions L-BFGS; the primal weights come out by the same rotation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from sklearn.model_selection import StratifiedKFold
from torch import Tensor

#: Strengths of the regularisation that cross-validation tries; they are for rows of length one.
LAMBDAS = (1e-2, 1e-3, 1e-4, 1e-5, 1e-6)
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
    """Descriptors in their principal coordinates: ``z = (x) @ basis`` with inner products kept."""

    coordinates: Tensor  #: [n, r]
    variances: Tensor  #: [r], the diagonal of z^T z
    basis: Tensor | None  #: [d, r]; None in the dual, where x^T v / sqrt(s) stands for it


def rotate(descriptors: Tensor) -> Rotated:
    """Rotate ``[n, d]`` descriptors into at most min(n, d) coordinates without loss."""
    count, length = descriptors.shape
    dual = count <= length
    gram = descriptors @ descriptors.T if dual else descriptors.T @ descriptors
    values, vectors = torch.linalg.eigh(gram.double())
    keep = values > RANK_TOLERANCE * values[-1].clamp_min(1e-30)
    values, vectors = values[keep], vectors[:, keep].to(descriptors.dtype)
    root = values.sqrt().to(descriptors.dtype)
    coordinates = vectors * root if dual else descriptors @ vectors
    return Rotated(coordinates, values.to(descriptors.dtype), None if dual else vectors)


def _solve(
    z: Tensor, y: Tensor, variances: Tensor, classes: int, strength: float, start: Tensor | None, steps: int = 300
) -> Tensor:
    """Weights ``[r + 1, K]`` in rotated coordinates, the bias last."""
    count = len(z)
    # Boehning's bound: the Hessian is below z^T z / 2n + strength; in scaled variables it is near the identity.
    scale = (variances / (2 * count) + strength).rsqrt().unsqueeze(1)
    bias_scale = torch.full((1, 1), 2.0**0.5, dtype=z.dtype)
    scales = torch.cat((scale, bias_scale))
    begin = torch.zeros(z.shape[1] + 1, classes, dtype=z.dtype) if start is None else start / scales
    scaled = begin.clone().requires_grad_()
    optimiser = torch.optim.LBFGS(
        [scaled],
        max_iter=steps,
        history_size=20,
        tolerance_grad=1e-5,
        tolerance_change=1e-9,
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
        descriptors: ``[n, d]``, rows of length one.
        targets: Class indices; every class must occur.
        classes: How many classes there are.
        strengths: Values of lambda to try.
        folds: Folds of the cross-validation, fewer where a class has fewer images.
        seed: Seed of the folds.
    """
    y = torch.as_tensor(list(targets))
    rotated = rotate(descriptors)
    z = rotated.coordinates
    smallest = int(torch.bincount(y, minlength=classes).min())
    losses: dict[float, float] = {}
    accuracies: dict[float, float] = {}
    best = strengths[0] if len(strengths) == 1 else 1e-4
    if len(strengths) > 1 and smallest >= 2:
        chooser = StratifiedKFold(min(folds, smallest), shuffle=True, random_state=seed)
        held_loss = dict.fromkeys(strengths, 0.0)
        held_right = dict.fromkeys(strengths, 0)
        for train_index, test_index in chooser.split(z, y):
            train, test = torch.as_tensor(train_index), torch.as_tensor(test_index)
            weights: Tensor | None = None
            share = len(train) / len(y)
            for strength in sorted(strengths, reverse=True):  # each solution starts the next
                weights = _solve(z[train], y[train], rotated.variances * share, classes, strength, weights)
                logits = z[test] @ weights[:-1] + weights[-1]
                held_loss[strength] += float(F.cross_entropy(logits, y[test], reduction="sum"))
                held_right[strength] += int((logits.argmax(1) == y[test]).sum())
        losses = {s: held_loss[s] / len(y) for s in strengths}
        accuracies = {s: held_right[s] / len(y) for s in strengths}
        best = min(losses, key=lambda s: losses[s])
    solution = _solve(z, y, rotated.variances, classes, best, None)
    weight = _primal(descriptors, rotated, solution[:-1])
    return LinearHead(weight.T.contiguous(), solution[-1].clone(), best, losses, accuracies)


def _primal(descriptors: Tensor, rotated: Rotated, weights: Tensor) -> Tensor:
    """Weights ``[d, K]`` for descriptors from weights ``[r, K]`` for coordinates."""
    if rotated.basis is not None:
        return rotated.basis @ weights
    # z = v sqrt(s), x^T v / sqrt(s) has orthonormal columns: w = x^T v s^{-1/2} w_z = x^T z w_z / s
    return descriptors.T @ (rotated.coordinates @ (weights / rotated.variances.unsqueeze(1)))
