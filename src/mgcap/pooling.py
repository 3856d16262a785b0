"""The canonical appearance (Eq. 4): element-wise maximum over rotations; and the mean over granularities (Eq. 2)."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor


def canonical_max(matrices: Tensor) -> tuple[Tensor, Tensor]:
    """Element-wise maximum over rotations, dimension -3.

    Args:
        matrices: ``[..., R, D, D]``.

    Returns:
        The maximum ``[..., D, D]`` and the index of the rotation that won each entry, the smaller one in a tie.
        The gradient goes to the winner alone (Eq. 28).
    """
    pooled, winner = matrices.max(dim=-3)
    return pooled, winner


def running_max(chunks: Iterable[Tensor]) -> Tensor:
    """The maximum of :func:`canonical_max` over matrices that come in chunks ``[..., r, D, D]``, in bounded memory."""
    pooled: Tensor | None = None
    for chunk in chunks:
        # with a gradient a tie must go to the first; without one the plain maximum is 15 times faster
        best = canonical_max(chunk)[0] if chunk.requires_grad else chunk.amax(-3)
        if pooled is None:
            pooled = best
        else:
            pooled = torch.where(best > pooled, best, pooled) if best.requires_grad else torch.maximum(pooled, best)
    return _at_least_one(pooled)


def running_winner(chunks: Iterable[Tensor]) -> Tensor:
    """The winners of :func:`canonical_max` over matrices that come in chunks ``[..., r, D, D]``."""
    pooled: Tensor | None = None
    winner: Tensor | None = None
    offset = 0
    for chunk in chunks:
        best, index = canonical_max(chunk)
        index = index + offset
        offset += chunk.shape[-3]
        if pooled is None or winner is None:
            pooled, winner = best, index
        else:
            better = best > pooled  # strictly: a tie stays with the smaller angle
            pooled, winner = torch.where(better, best, pooled), torch.where(better, index, winner)
    return _at_least_one(winner)


def running_mean(chunks: Iterable[Tensor]) -> Tensor:
    """Mean over rotations of matrices that come in chunks ``[..., r, D, D]``."""
    total: Tensor | None = None
    count = 0
    for chunk in chunks:
        total = chunk.sum(-3) if total is None else total + chunk.sum(-3)
        count += chunk.shape[-3]
    return _at_least_one(total) / count


def _at_least_one(result: Tensor | None) -> Tensor:
    if result is None:
        raise ValueError("at least one rotation is needed")
    return result


def count_votes(winner: Tensor, rotations: int) -> Tensor:
    """How many entries each rotation won: ``[..., D, D] -> [..., R]``, int64."""
    flat = winner.flatten(-2)
    votes = torch.zeros(*flat.shape[:-1], rotations, dtype=torch.int64, device=flat.device)
    return votes.scatter_add_(-1, flat, torch.ones_like(flat))


def fuse(matrices: Tensor, fusion: str = "mean", norm: str = "none") -> Tensor:
    """Fuse granularities, dimension -3 (Eq. 2): their mean, or their sum, each divided by its Frobenius norm or not."""
    if norm == "frobenius":
        matrices = matrices / torch.linalg.matrix_norm(matrices, keepdim=True).clamp_min(1e-12)
    return matrices.mean(-3) if fusion == "mean" else matrices.sum(-3)
