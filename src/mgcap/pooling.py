"""The canonical appearance (Eq. 4): element-wise maximum over rotations; and the mean over granularities (Eq. 2).

Matrices of rotations come in chunks, so that memory does not grow with their number. A rule for pooling them is an
entry of :data:`RULES`; nothing else in the package knows which rules there are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from mgcap.embedding import TINY


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


def _add_to_maximum(best: Tensor | None, matrices: Tensor) -> Tensor:
    # with a gradient a tie must go to the first; without one the plain maximum is 15 times faster
    own = canonical_max(matrices)[0] if matrices.requires_grad else matrices.amax(-3)
    if best is None:
        return own
    return torch.where(own > best, own, best) if own.requires_grad else torch.maximum(best, own)


def _add_to_sum(total: Tensor | None, matrices: Tensor) -> Tensor:
    return matrices.sum(-3) if total is None else total + matrices.sum(-3)


@dataclass(frozen=True)
class Rule:
    """How the matrices of rotations become one.

    Attributes:
        add: From what was kept so far (None at first) and further matrices ``[..., r, D, D]`` to what is kept,
            ``[..., D, D]``.
        finish: From what was kept, and the number of rotations, to the pooled matrix.
    """

    add: Callable[[Tensor | None, Tensor], Tensor]
    finish: Callable[[Tensor, int], Tensor] = lambda kept, count: kept


#: Rules by the name that ``rotation_pooling`` takes.
RULES: dict[str, Rule] = {
    "max": Rule(_add_to_maximum),
    "mean": Rule(_add_to_sum, lambda total, count: total / count),
}
#: Those of the package, whatever is added to or put in place of them.
OWN = dict(RULES)


class RotationPool:
    """Pools the matrices of rotations that come in chunks.

    Args:
        kind: A key of :data:`RULES`.
        winners: Also keep which rotation has the largest entry (Eq. 28), whatever the rule.
    """

    def __init__(self, kind: str = "max", winners: bool = False) -> None:
        self.rule = RULES[kind]
        self.winners = winners
        self.count = 0
        self._kept: Tensor | None = None
        self._best: Tensor | None = None
        self._winner: Tensor | None = None

    def add(self, matrices: Tensor) -> None:
        """Take in matrices ``[..., r, D, D]``."""
        if not matrices.shape[-3]:
            return
        self._kept = self.rule.add(self._kept, matrices)
        if self.winners:
            self._compare(matrices.detach())
        self.count += matrices.shape[-3]

    def _compare(self, matrices: Tensor) -> None:
        best, winner = canonical_max(matrices)
        winner = winner + self.count
        if self._best is not None and self._winner is not None:
            better = best > self._best  # strictly: a tie stays with the smaller angle
            best, winner = torch.where(better, best, self._best), torch.where(better, winner, self._winner)
        self._best, self._winner = best, winner

    @property
    def pooled(self) -> Tensor:
        """The pooled matrix ``[..., D, D]``."""
        if self._kept is None:
            raise ValueError("at least one rotation is needed")
        return self.rule.finish(self._kept, self.count)

    @property
    def winner(self) -> Tensor | None:
        """The rotation with the largest entry ``[..., D, D]``, if that was asked for."""
        return self._winner


def pool_rotations(matrices: Tensor, kind: str = "max") -> Tensor:
    """Pool over rotations, dimension -3.

    Args:
        matrices: ``[..., R, D, D]``.
        kind: A key of :data:`RULES`.

    Returns:
        ``[..., D, D]``.
    """
    pool = RotationPool(kind)
    pool.add(matrices)
    return pool.pooled


def count_votes(winner: Tensor, rotations: int) -> Tensor:
    """How many entries each rotation won: ``[..., D, D] -> [..., R]``, int64."""
    flat = winner.flatten(-2)
    votes = torch.zeros(*flat.shape[:-1], rotations, dtype=torch.int64, device=flat.device)
    return votes.scatter_add_(-1, flat, torch.ones_like(flat))


def fuse(matrices: Tensor, fusion: str = "mean", norm: str = "none") -> Tensor:
    """Fuse granularities, dimension -3 (Eq. 2): their mean, or their sum, each divided by its Frobenius norm or not."""
    if norm == "frobenius":
        matrices = matrices / torch.linalg.matrix_norm(matrices, keepdim=True).clamp_min(TINY)
    return matrices.mean(-3) if fusion == "mean" else matrices.sum(-3)
