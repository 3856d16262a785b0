from __future__ import annotations

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor

from mgcap.labelling.lbfgs import minimise


def test_each_problem_is_solved_as_by_scipy_alone() -> None:
    rng = np.random.default_rng(0)
    targets = rng.normal(size=(4, 3, 2)) * np.array([1, 3, 0.2])[None, :, None]

    def value(x: Tensor) -> Tensor:  # smooth, convex, far from quadratic, and each with another minimum
        return (torch.logaddexp(x, -2 * x) + (x - torch.from_numpy(targets).float()).square() / 4).double()

    def both(x: Tensor) -> tuple[Tensor, Tensor]:
        x = x.detach().requires_grad_()
        each = value(x).sum((0, 2), keepdim=True)
        each.sum().backward()
        assert x.grad is not None
        return each.detach(), x.grad

    found = minimise(both, torch.zeros(4, 3, 2), 1e-6)
    for number in range(3):
        own = targets[:, number].ravel()
        oracle = minimize(
            lambda x, t=own: float((np.logaddexp(x, -2 * x) + (x - t) ** 2 / 4).sum()), np.zeros(8), tol=1e-9
        )
        np.testing.assert_allclose(found[:, number].ravel(), oracle.x, atol=1e-4)
