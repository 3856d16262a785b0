from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from scipy.special import log_softmax
from sklearn.linear_model import LogisticRegression

from mgcap.labelling.head import BIAS_VARIANCE, STRENGTHS, USUAL, solve
from tests.labelling.pools import grid_pool, some_labels


def _problem(count: int, noise: float = 1.5):
    pool, truth = grid_pool(noise=noise)
    labels = some_labels(truth, count)
    cells = np.array(sorted(labels))
    vectors = pool.vectors[torch.from_numpy(cells)].float()
    return vectors, truth[cells], pool.likeness.mean, pool.likeness.spread


@pytest.mark.parametrize("count", [12, 90])
def test_the_head_is_that_of_scikit_learn(count: int) -> None:
    vectors, targets, centre, spread = _problem(count)
    found = solve(vectors, targets, 3, centre, spread, [None])
    strength = USUAL * 100 / count * spread
    oracle = LogisticRegression(C=1 / (count * strength), tol=1e-10, max_iter=10_000).fit(vectors.numpy(), targets)
    probabilities = (vectors @ found.weight.T + found.bias).softmax(1)
    np.testing.assert_allclose(probabilities, oracle.predict_proba(vectors.numpy()), atol=2e-3)
    np.testing.assert_allclose(found.weight, oracle.coef_, atol=2e-3 * float(found.weight.abs().max()) + 1e-4)


def test_held_out_are_those_of_heads_without_them_at_the_best_strength() -> None:
    vectors, targets, centre, spread = _problem(100)
    folds = np.arange(100) % 4
    other = np.arange(100) // 34
    found = solve(vectors, targets, 3, centre, spread, [folds, other])
    losses = {}
    for strength in STRENGTHS:
        every = np.empty((100, 3))
        for fold in range(4):
            inside = folds != fold
            model = LogisticRegression(C=1 / (inside.sum() * strength * spread), tol=1e-10, max_iter=10_000)
            every[~inside] = model.fit(vectors.numpy()[inside], targets[inside]).predict_log_proba(
                vectors.numpy()[~inside]
            )
        losses[strength] = -every[np.arange(100), targets].mean()
        if strength == found.strength:
            assert found.held_out[0] is not None
            np.testing.assert_allclose(found.held_out[0].softmax(1), np.exp(every), atol=0.03)
    assert found.strength == min(losses, key=losses.__getitem__)
    assert found.held_out[1] is not None
    assert found.held_out[1].isfinite().all()


def test_a_prior_is_where_the_head_is_pulled_to() -> None:
    vectors, targets, centre, spread = _problem(8)
    weight, bias = torch.randn(3, 24, generator=torch.Generator().manual_seed(0)), torch.tensor([0.5, 0.0, -1.0])
    found = solve(vectors, targets, 3, centre, spread, [None], (weight, bias))
    x, before = (vectors - centre).double().numpy(), (vectors @ weight.T + bias).double().numpy()
    strength = USUAL * 100 / 8 * spread

    def loss(flat):
        w, b = flat[:72].reshape(24, 3), flat[72:]
        each = log_softmax(before + x @ w + b, axis=1)[np.arange(8), targets]
        return -each.mean() + strength / 2 * (w**2).sum() + (b**2).sum() / (2 * 8 * BIAS_VARIANCE)

    best = minimize(loss, np.zeros(75), tol=1e-10).x
    w, b = best[:72].reshape(24, 3), best[72:]
    np.testing.assert_allclose(found.weight, weight.numpy() + w.T, atol=3e-3)
    np.testing.assert_allclose(found.bias, bias.numpy() + b - centre.numpy() @ w, atol=3e-3)
