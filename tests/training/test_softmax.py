from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold

from mgcap.errors import DataError
from mgcap.training.softmax import rotate, solve_head


def _problem(count: int, length: int, classes: int = 4, seed: int = 0) -> tuple[torch.Tensor, list[int]]:
    generator = torch.Generator().manual_seed(seed)
    targets = torch.arange(count) % classes
    centres = torch.randn(classes, length, generator=generator)
    rows = centres[targets] * 0.4 + torch.randn(count, length, generator=generator)
    return F.normalize(rows, dim=1).double(), targets.tolist()


@pytest.mark.parametrize(("count", "length"), [(40, 200), (200, 40), (60, 60)])
def test_rotation_keeps_inner_products(count: int, length: int) -> None:
    rows, _ = _problem(count, length)
    rotated = rotate(rows)
    z = rotated.coordinates
    centred = rows - rows.mean(0)
    assert z.shape[1] <= min(count, length)
    assert torch.allclose(z @ z.T, centred @ centred.T, atol=1e-6)
    assert torch.allclose(z.T @ z, torch.diag(rotated.variances), atol=1e-6)


@pytest.mark.parametrize(("count", "length"), [(40, 200), (200, 40)])
@pytest.mark.parametrize("strength", [1e-1, 1e-3])
def test_the_same_solution_as_scikit_learn(count: int, length: int, strength: float) -> None:
    rows, targets = _problem(count, length)
    head = solve_head(rows, targets, 4, (strength,))
    strength *= (rows - rows.mean(0)).square().sum(1).mean().item()
    reference = LogisticRegression(C=1 / (strength * count), tol=1e-10, max_iter=10000).fit(rows.numpy(), targets)
    np.testing.assert_allclose(head.weight.numpy(), reference.coef_, atol=2e-3 * np.abs(reference.coef_).max())

    def objective(weight: torch.Tensor, bias: torch.Tensor) -> float:
        loss = F.cross_entropy(rows @ weight.T + bias, torch.tensor(targets))
        return (loss + strength / 2 * weight.square().sum()).item()

    best = objective(torch.from_numpy(reference.coef_), torch.from_numpy(reference.intercept_))
    assert objective(head.weight, head.bias) == pytest.approx(best, abs=1e-6)


def test_converged_to_a_zero_gradient_in_float32() -> None:
    rows, targets = _problem(60, 300)
    rows = rows.float()
    head = solve_head(rows, targets, 4, (1e-4,))
    weight, bias = head.weight.requires_grad_(), head.bias.requires_grad_()
    scale = (rows - rows.mean(0)).square().sum(1).mean()
    loss = F.cross_entropy(rows @ weight.T + bias, torch.tensor(targets)) + 5e-5 * scale * weight.square().sum()
    loss.backward()
    assert weight.grad.norm() < 1e-4 and bias.grad.norm() < 1e-4


def test_cross_validation_prefers_what_predicts() -> None:
    """With labels that mean nothing, the strongest regularisation loses least."""
    rows, targets = _problem(80, 50)
    noise = np.random.default_rng(0).permutation(targets).tolist()
    assert solve_head(rows, noise, 4, (1.0, 1e-6)).regularisation == 1.0
    clear = F.normalize(torch.eye(4).repeat(20, 1).double() + 0.01 * rows[:, :4], dim=1)
    head = solve_head(clear, targets, 4, (1.0, 1e-6))
    assert head.regularisation == 1e-6 and head.cv_accuracy[1e-6] == 1.0
    assert set(head.cv_loss) == {1.0, 1e-6}


def test_a_class_with_one_image_needs_no_cross_validation() -> None:
    rows, targets = _problem(9, 20)
    head = solve_head(rows, [*targets[:8], 3], 4)
    assert torch.isfinite(head.weight).all()
    single = solve_head(rows[:4], [0, 1, 2, 3], 4)
    assert single.cv_loss == {}
    assert ((rows[:4] @ single.weight.T + single.bias).argmax(1) == torch.arange(4)).all()


def test_copies_and_rank_deficiency() -> None:
    rows, targets = _problem(20, 100)
    head = solve_head(torch.cat((rows, rows)), targets * 2, 4, (1e-3,))
    again = solve_head(rows, targets, 4, (1e-3,))
    assert torch.allclose(head.weight, again.weight, atol=1e-3 * again.weight.abs().max().item())


@pytest.mark.parametrize(("count", "length"), [(40, 200), (200, 40)])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_rows_that_are_not_finite_are_refused(count: int, length: int, value: float) -> None:
    rows, targets = _problem(count, length)
    rows[7, 3] = value
    with pytest.raises(DataError, match="not finite"):
        solve_head(rows, targets, 4)


def _weighted_problem(count: int, length: int) -> tuple[torch.Tensor, list[int], list[float], float]:
    """Rows, targets and weights, and the weighted variance of the rows."""
    rows, targets = _problem(count, length)
    weights = np.random.default_rng(1).uniform(0.2, 5, count)
    centred = rows.numpy() - np.average(rows.numpy(), axis=0, weights=weights)
    return rows, targets, weights.tolist(), float(np.average((centred**2).sum(1), weights=weights))


@pytest.mark.parametrize(("count", "length"), [(40, 200), (200, 40)])
@pytest.mark.parametrize("strength", [1e-1, 1e-3])
def test_weighted_images_as_in_scikit_learn(count: int, length: int, strength: float) -> None:
    rows, targets, weights, variance = _weighted_problem(count, length)
    head = solve_head(rows, targets, 4, (strength,), weights=weights)
    reference = LogisticRegression(C=1 / (strength * variance * sum(weights)), tol=1e-10, max_iter=10000)
    reference.fit(rows.numpy(), targets, sample_weight=weights)
    largest = np.abs(reference.coef_).max()
    np.testing.assert_allclose(head.weight.numpy(), reference.coef_, atol=2e-3 * largest)
    plain = solve_head(rows, targets, 4, (strength,))
    assert np.abs(plain.weight.numpy() - reference.coef_).max() > 0.02 * largest


@pytest.mark.parametrize(("count", "length"), [(40, 200), (200, 40)])
def test_integer_weights_are_repeated_images(count: int, length: int) -> None:
    rows, targets = _problem(count, length)
    times = np.random.default_rng(2).integers(1, 5, count)
    head = solve_head(rows, targets, 4, (1e-3,), weights=times.tolist())
    order = np.repeat(np.arange(count), times)
    repeated = solve_head(rows[order], [targets[i] for i in order], 4, (1e-3,))
    assert torch.allclose(head.weight, repeated.weight, atol=1e-4 * repeated.weight.abs().max().item())
    assert torch.allclose(head.bias, repeated.bias, atol=1e-4 * repeated.weight.abs().max().item())
    scaled = solve_head(rows, targets, 4, (1e-3,), weights=(0.1 * times).tolist())
    assert torch.allclose(scaled.weight, head.weight, atol=1e-4 * head.weight.abs().max().item())


def test_cross_validation_knows_the_weights() -> None:
    """Folds, heads and held-out losses by scikit-learn alone."""
    rows, targets, weights, variance = _weighted_problem(60, 20)
    x, y, w = rows.numpy(), np.array(targets), np.array(weights)
    head = solve_head(rows, targets, 4, (1e-1, 1e-3), folds=3, seed=5, weights=weights)
    for strength in (1e-1, 1e-3):
        held_out, right = np.zeros(60), np.zeros(60)
        for train, test in StratifiedKFold(3, shuffle=True, random_state=5).split(x, y):
            reference = LogisticRegression(C=1 / (strength * variance * w[train].sum()), tol=1e-10, max_iter=10000)
            p = reference.fit(x[train], y[train], sample_weight=w[train]).predict_proba(x[test])
            held_out[test], right[test] = -np.log(p[np.arange(len(test)), y[test]]), p.argmax(1) == y[test]
        assert head.cv_loss[strength] == pytest.approx(np.average(held_out, weights=w), rel=1e-3)
        assert head.cv_accuracy[strength] == pytest.approx(np.average(right, weights=w), abs=1e-6)
