r"""Local features to Gaussian SPD matrices (Eq. 5-8).

With the 1/N covariance of Eq. 5, the Gaussian embedding of Eq. 7 is the second moment of the homogeneous features:

.. math:: G = \begin{bmatrix} C+\mu\mu^\top & \mu \\ \mu^\top & 1\end{bmatrix}
            = \tfrac1N \begin{bmatrix}F\\ \mathbf 1\end{bmatrix}\begin{bmatrix}F\\ \mathbf 1\end{bmatrix}^\top,
          \qquad G^+ = G + \lambda\,\mathrm{trace}(G)\,I .
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

#: The least that anything is divided by: keeps the norm of an all-zero map or vector from being zero.
TINY = 1e-12


def normalise_features(features: Tensor, kind: str = "rms") -> Tensor:
    """Scale each map ``[C, N]`` as a whole: mean square 1 (``rms``), Euclidean length 1 (``l2``) or not (``none``)."""
    if kind == "none":
        return features
    length: Tensor = torch.linalg.vector_norm(features, dim=(-2, -1), keepdim=True).clamp_min(TINY)
    scale = 1.0 if kind == "l2" else math.sqrt(features.shape[-1] * features.shape[-2])
    return features * (scale / length)


def add_ridge_(matrix: Tensor, ridge: float) -> Tensor:
    """Eq. 8: add ``ridge`` times the trace to the diagonal, in place (the matrices of 36 views are 38 MB)."""
    if ridge and torch.compiler.is_exporting():  # a graph cannot hold what is written in place
        trace = matrix.diagonal(dim1=-2, dim2=-1).sum(-1)[..., None, None]
        return matrix + ridge * trace * torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
    if ridge:
        diagonal = matrix.diagonal(dim1=-2, dim2=-1)
        diagonal.add_(ridge * diagonal.sum(-1, keepdim=True))
    return matrix


def covariance(features: Tensor, ridge: float = 1e-4, unbiased: bool = False) -> Tensor:
    """Eq. 5 with the ridge of Eq. 8: ``[..., C, N] -> [..., C, C]``.

    Args:
        features: Local features, one column a position.
        ridge: Lambda of Eq. 8.
        unbiased: Divide by N - 1 (the authors' script) instead of N (the paper).
    """
    positions = features.shape[-1]
    centred = features - features.mean(-1, keepdim=True)
    centred = centred * (max(positions - 1, 1) if unbiased else positions) ** -0.5
    return add_ridge_(centred @ centred.mT, ridge)


def gaussian_embedding(features: Tensor, ridge: float = 1e-4, unbiased: bool = False) -> Tensor:
    """Eq. 5-8: a Gaussian as one SPD matrix, ``[..., C, N] -> [..., C+1, C+1]``.

    Args:
        features: Local features, one column a position.
        ridge: Lambda of Eq. 8.
        unbiased: Divide the covariance by N - 1 (the authors' script) instead of N (the paper).
    """
    positions = features.shape[-1]
    if unbiased and positions > 1:
        mean = features.mean(-1, keepdim=True)
        second = (features @ features.mT - mean @ mean.mT) / (positions - 1)
        top = torch.cat((second, mean), dim=-1)
        bottom = torch.cat((mean.mT, torch.ones_like(mean[..., :1, :])), dim=-1)
        return add_ridge_(torch.cat((top, bottom), dim=-2), ridge)
    homogeneous = torch.cat((features, torch.ones_like(features[..., :1, :])), dim=-2) * positions**-0.5
    return add_ridge_(homogeneous @ homogeneous.mT, ridge)


def gaussian_of_positions(positions: Tensor, feature_norm: str = "rms", ridge: float = 1e-4) -> Tensor:
    """The same as :func:`gaussian_embedding` of normalised features, of positions that are homogeneous already.

    A normalisation of the features is one of their second moments: nothing as large as the features is made.

    Args:
        positions: ``[..., N, C+1]``: a row for each position, the last column is one.
        feature_norm: As for :func:`normalise_features`.
        ridge: Lambda of Eq. 8.
    """
    count, channels = positions.shape[-2], positions.shape[-1] - 1
    matrix = (positions.mT @ positions) / count
    if feature_norm != "none":
        square = matrix.diagonal(dim1=-2, dim2=-1)[..., :channels].sum(-1, keepdim=True).clamp_min(TINY)
        scale = ((channels if feature_norm == "rms" else 1 / count) / square).sqrt()
        factors = torch.cat((scale.expand(*scale.shape[:-1], channels), torch.ones_like(scale)), -1)
        matrix = matrix * factors[..., None] * factors[..., None, :]
    return add_ridge_(matrix, ridge)
