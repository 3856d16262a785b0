from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mgcap.pooling import RULES, RotationPool, Rule, canonical_max, count_votes, fuse, pool_rotations


def _random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_max_and_winner_entry_by_entry() -> None:
    matrices = _random(2, 5, 3, 3)
    pooled, winner = canonical_max(matrices)
    for b in range(2):
        for i in range(3):
            for j in range(3):
                column = matrices[b, :, i, j].tolist()
                assert pooled[b, i, j].item() == max(column)
                assert winner[b, i, j].item() == column.index(max(column))


def test_gradient_goes_to_the_winner_alone() -> None:
    matrices = _random(4, 2, 2).requires_grad_()
    canonical_max(matrices)[0].sum().backward()
    assert torch.equal(matrices.grad.sum(0), torch.ones(2, 2))
    assert set(matrices.grad.unique().tolist()) == {0.0, 1.0}


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 9), st.integers(1, 5), st.integers(0, 99))
def test_chunks_make_no_difference_even_with_ties(rotations: int, chunk: int, seed: int) -> None:
    matrices = _random(2, rotations, 3, 3, seed=seed).round()  # rounding makes ties
    pooled, winner = canonical_max(matrices)
    largest, mean = RotationPool("max", winners=True), RotationPool("mean", winners=True)
    for part in matrices.split(chunk, dim=1):
        largest.add(part)
        mean.add(part)
    assert torch.equal(largest.pooled, pooled) and torch.equal(pool_rotations(matrices), pooled)
    assert torch.equal(largest.winner, winner) and torch.equal(mean.winner, winner)
    assert torch.allclose(mean.pooled, matrices.mean(1), atol=1e-6)


def test_a_pool_without_rotations_is_an_error() -> None:
    with pytest.raises(ValueError, match="at least one rotation"):
        pool_rotations(torch.zeros(0, 2, 2))


def test_a_rule_of_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    def keep_least(least: torch.Tensor | None, matrices: torch.Tensor) -> torch.Tensor:
        own = matrices.amin(-3)
        return own if least is None else torch.minimum(least, own)

    monkeypatch.setitem(RULES, "min", Rule(keep_least))
    matrices = _random(5, 3, 3)
    assert torch.equal(pool_rotations(matrices, "min"), matrices.min(0).values)


def test_votes_count_every_entry() -> None:
    winner = torch.tensor([[[0, 2], [2, 2]], [[1, 1], [0, 1]]])
    assert count_votes(winner, 4).tolist() == [[1, 0, 3, 0], [1, 3, 0, 0]]


def test_fusion() -> None:
    matrices = _random(2, 3, 4, 4)
    assert torch.allclose(fuse(matrices), matrices.sum(1) / 3)
    assert torch.allclose(fuse(matrices, "sum"), matrices[:, 0] + matrices[:, 1] + matrices[:, 2])
    unit = fuse(matrices[:, :1], "sum", "frobenius")
    assert torch.allclose(unit.square().sum((-2, -1)), torch.ones(2))
