from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold

from mgcap.errors import DataError
from mgcap.training.softmax import HeadSolver, rotate, solve_head


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


def _shares(count: int) -> torch.Tensor:
    """Shares of four classes; some rows show one class alone."""
    drawn = np.random.default_rng(3).dirichlet([0.5] * 4, count)
    drawn[::3] = np.eye(4)[np.arange(len(drawn[::3])) % 4]
    return torch.from_numpy(drawn)


@pytest.mark.parametrize(("count", "length"), [(40, 200), (200, 40)])
def test_shares_are_a_row_of_each_class_with_that_weight(count: int, length: int) -> None:
    rows, _, weights, variance = _weighted_problem(count, length)
    shares = _shares(count)
    head = solve_head(rows, shares, 4, (1e-2,), weights=weights)
    reference = LogisticRegression(C=1 / (1e-2 * variance * sum(weights)), tol=1e-10, max_iter=10000)
    every = (shares.numpy() * np.array(weights)[:, None]).ravel()
    reference.fit(np.repeat(rows.numpy(), 4, 0), np.tile(np.arange(4), count), sample_weight=every)
    np.testing.assert_allclose(head.weight.numpy(), reference.coef_, atol=2e-3 * np.abs(reference.coef_).max())
    hard = solve_head(rows, shares.argmax(1).tolist(), 4, (1e-2,), weights=weights)
    assert np.abs(hard.weight.numpy() - reference.coef_).max() > 0.02 * np.abs(reference.coef_).max()


def test_shares_of_one_class_are_that_class() -> None:
    rows, targets = _problem(60, 20)
    by_number, by_share = (
        solve_head(rows, given, 4, (1e-1, 1e-3), seed=4) for given in (targets, torch.eye(4)[torch.tensor(targets)])
    )
    assert torch.equal(by_number.weight, by_share.weight) and by_number.cv_loss == by_share.cv_loss


def test_folds_that_are_given_are_held_out_together() -> None:
    """Heads of the folds and held-out losses of shares by scikit-learn alone."""
    rows, _, weights, variance = _weighted_problem(60, 20)
    shares, folds = _shares(60), np.random.default_rng(4).integers(0, 3, 60)
    x, w, t = rows.numpy(), np.array(weights), shares.numpy()
    strengths = (1e-1, 1e-3)
    solution = HeadSolver(rows, shares, 4, weights, folds.tolist()).solve(None, strengths, folds=5, seed=9)
    logits = {}
    for strength in strengths:
        held_out = np.zeros((60, 4))
        for fold in range(3):
            train, test = folds != fold, folds == fold
            reference = LogisticRegression(C=1 / (strength * variance * w[train].sum()), tol=1e-10, max_iter=10000)
            every = (t[train] * w[train][:, None]).ravel()
            reference.fit(np.repeat(x[train], 4, 0), np.tile(np.arange(4), train.sum()), sample_weight=every)
            held_out[test] = reference.decision_function(x[test])
        logits[strength] = held_out
        p = np.exp(held_out) / np.exp(held_out).sum(1, keepdims=True)
        assert solution.cv_loss[strength] == pytest.approx(np.average(-(t * np.log(p)).sum(1), weights=w), rel=1e-3)
        right = p.argmax(1) == t.argmax(1)
        assert solution.cv_accuracy[strength] == pytest.approx(np.average(right, weights=w))
    assert solution.cv_logits is not None
    found, expected = solution.cv_logits.numpy(), logits[solution.regularisation]
    found, expected = (own - own.mean(1, keepdims=True) for own in (found, expected))
    np.testing.assert_allclose(found, expected, atol=0.02 * np.abs(expected).max())


def test_folds_of_some_of_the_images_are_theirs() -> None:
    rows, targets = _problem(60, 20)
    folds, members = np.arange(60) % 3, [i for i in range(60) if i % 5]
    whole = HeadSolver(rows, targets, 4, folds=folds.tolist()).solve(members, (1e-1, 1e-3))
    alone = HeadSolver(rows[members], [targets[i] for i in members], 4, folds=folds[members].tolist())
    expected = alone.solve(None, (1e-1, 1e-3)).cv_logits
    assert whole.cv_logits is not None and expected is not None
    torch.testing.assert_close(whole.cv_logits, expected, atol=1e-3, rtol=1e-3)
