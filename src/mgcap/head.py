r"""From a symmetric matrix to the classifier's input (Eq. 1), and from its probabilities to names.

The upper triangle with its off-diagonal entries times :math:`\sqrt2` is an isometry: inner products of the vectors
are inner products of the matrices, with half the weights.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from mgcap.typing import Array


def vector_length(side: int, kind: str = "triangle") -> int:
    """Length of the vector of a ``side`` x ``side`` matrix."""
    return side * (side + 1) // 2 if kind == "triangle" else side * side


def to_vector(matrix: Tensor, kind: str = "triangle") -> Tensor:
    """Flatten symmetric matrices without changing their inner products.

    Args:
        matrix: ``[..., D, D]``.
        kind: ``triangle`` for D(D+1)/2 numbers, ``full`` for D*D.
    """
    if kind == "full":
        return matrix.flatten(-2)
    side = matrix.shape[-1]
    row, column = torch.triu_indices(side, side, device=matrix.device)
    scale = torch.full(row.shape, math.sqrt(2.0), dtype=matrix.dtype, device=matrix.device)
    scale[row == column] = 1.0
    return matrix.flatten(-2)[..., row * side + column] * scale


def upper_triangle(matrix: Tensor) -> Tensor:
    """The upper triangle of symmetric matrices as it is, ``[..., D, D] -> [..., D (D + 1) / 2]``."""
    row, column = torch.triu_indices(*matrix.shape[-2:], device=matrix.device)
    return matrix[..., row, column]


def from_upper_triangle(rows: Tensor) -> Tensor:
    """The inverse of :func:`upper_triangle`."""
    side = math.isqrt(2 * rows.shape[-1])
    row, column = torch.triu_indices(side, side, device=rows.device)
    matrices = rows.new_empty(*rows.shape[:-1], side, side)
    matrices[..., row, column] = rows
    matrices[..., column, row] = rows
    return matrices


def signed_root(vector: Tensor) -> Tensor:
    """sign(v) sqrt(|v|), with a gradient of zero at zero."""
    size = vector.abs()
    safe = torch.where(size > 0, size, torch.ones_like(size)).sqrt()
    return torch.where(size > 0, vector.sign() * safe, torch.zeros_like(vector))


def descriptor_vector(matrix: Tensor, kind: str = "triangle", root: bool = False) -> Tensor:
    """What the head sees: the vector, its signed root if asked for, at length one."""
    vector = to_vector(matrix, kind)
    return F.normalize(signed_root(vector) if root else vector, dim=-1)


def top_classes(classes: Sequence[str] | Array, probabilities: Array, count: int = 5) -> list[tuple[str, float]]:
    """The most probable classes, in falling order; equal ones in the order of the list."""
    order = np.argsort(-probabilities, kind="stable")[:count]
    return [(str(classes[k]), float(probabilities[k])) for k in order]
