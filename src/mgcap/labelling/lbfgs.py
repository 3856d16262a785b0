"""L-BFGS for several smooth convex problems of the same shape at once, each with its own history and steps.

Problems of labels are small: what others offer spends its time between products, and loads for seconds (torch) or wakes
threads that wait for each other (SciPy's, where the BLAS has several).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import torch
from torch import Tensor

#: Steps that are remembered; iterations, and halvings of a step, at most.
HISTORY, ITERATIONS, HALVINGS = 10, 300, 20
#: The share of the promised decrease that a step has to bring; and of the value that is rounding.
ENOUGH, ROUNDING = 1e-4, 1e-7


def _dot(a: Tensor, b: Tensor) -> Tensor:
    return (a * b).sum((0, 2), keepdim=True)


def minimise(function: Callable[[Tensor], tuple[Tensor, Tensor]], start: Tensor, tolerance: float) -> Tensor:
    """Minimise over ``[r, F, K]``, each of the F problems by itself.

    Args:
        function: To values ``[1, F, 1]`` in double precision and gradients ``[r, F, K]``. Variables should be scaled
            so that the Hessian is near the identity.
        start: Where to begin.
        tolerance: Largest entry of a gradient at which a problem counts as solved.
    """
    x = start
    value, gradient = function(x)
    history: deque[tuple[Tensor, Tensor, Tensor]] = deque(maxlen=HISTORY)
    scale = torch.ones(1, x.shape[1], 1)
    for _ in range(ITERATIONS):
        if float(gradient.abs().max()) <= tolerance:
            break
        direction = _direction(gradient, history, scale)
        promised = _dot(gradient, direction).double()
        step = torch.ones_like(scale)
        for _ in range(HALVINGS):
            moved = x + step * direction
            new_value, new_gradient = function(moved)
            enough = new_value <= value + ENOUGH * step * promised + ROUNDING * value.abs()
            if bool(enough.all()):
                break
            step = torch.where(enough, step, step / 2)
        change, bend = moved - x, new_gradient - gradient
        curvature, square = _dot(change, bend), _dot(bend, bend)
        convex = curvature > 1e-12
        history.append((change, bend, torch.where(convex, 1 / curvature.clamp_min(1e-12), 0.0)))
        scale = torch.where(convex, curvature / square.clamp_min(1e-30), scale)
        x, value, gradient = moved, new_value, new_gradient
    return x


def _direction(gradient: Tensor, history: deque[tuple[Tensor, Tensor, Tensor]], scale: Tensor) -> Tensor:
    """Where to go: the two loops of Nocedal (1980)."""
    direction, shares = -gradient, []
    for change, bend, inverse in reversed(history):
        share = inverse * _dot(change, direction)
        direction = direction - share * bend
        shares.append(share)
    direction = direction * scale
    for (change, bend, inverse), share in zip(history, reversed(shares), strict=True):
        direction = direction + change * (share - inverse * _dot(bend, direction))
    return direction
