"""A plain port of the authors' script, as the yardstick of the benchmarks: never used to classify.

One view after the other, three interpolations each, NCHW in fp32, the covariance by its centring matrix, and all the
matrices of a granularity kept until the maximum is taken.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mgcap.embedding import normalise_features
from mgcap.model import MGCAP
from mgcap.views import central_crop


def _resize(image: Tensor, size: int) -> Tensor:
    return F.interpolate(image, (size, size), mode="bilinear", align_corners=False)


def _rotate(image: Tensor, degrees: float) -> Tensor:
    angle = math.radians(degrees)
    theta = torch.tensor([[math.cos(angle), math.sin(angle), 0.0], [-math.sin(angle), math.cos(angle), 0.0]])
    grid = F.affine_grid(theta[None], list(image.shape), align_corners=False)
    return F.grid_sample(image, grid, align_corners=False)


def _gaussian(features: Tensor, ridge: float) -> Tensor:
    """Eq. 5-8 as they stand, with the N x N centring matrix."""
    channels, positions = features.shape
    centring = (torch.eye(positions) - torch.ones(positions, positions) / positions) / positions
    covariance = features @ centring @ features.T
    mean = features.mean(1, keepdim=True)
    top = torch.cat((covariance + mean @ mean.T, mean), 1)
    matrix = torch.cat((top, torch.cat((mean.T, torch.ones(1, 1)), 1)), 0)
    return matrix + ridge * matrix.trace() * torch.eye(channels + 1)


@torch.no_grad()
def plain_logits(model: MGCAP, networks: list[nn.Module], image: Tensor) -> Tensor:
    """Logits ``[1, K]`` of one image ``[1, 3, H, W]``, the slow way; ``networks`` are the backbones in NCHW."""
    c = model.config
    image = (central_crop(image, c.field_of_view) - model.mean) / model.std
    padded = round(c.size * math.sqrt(2))
    margin = (padded - c.size) // 2, padded - c.size - (padded - c.size) // 2
    pooled = []
    for s, ratio in enumerate(c.granularities):
        matrices = []
        for angle in c.angles:
            view = _resize(central_crop(image, ratio), c.size)
            view = _rotate(_resize(F.pad(view, (*margin, *margin)), c.size), angle)
            features = networks[s if len(networks) > 1 else 0](view).flatten(2)[0]
            features = normalise_features(model.reduction(features), c.feature_norm)
            matrices.append(_gaussian(features, c.ridge))
        pooled.append(torch.stack(matrices).max(0).values)
    fused = torch.stack(pooled).mean(0)
    values, vectors = torch.linalg.eigh(fused)
    root = vectors @ torch.diag(values.clamp(*c.clip).sqrt()) @ vectors.T
    side = len(root)
    row, column = torch.triu_indices(side, side)
    vector = root[row, column] * torch.where(row == column, 1.0, math.sqrt(2.0))
    logits: Tensor = model.head(F.normalize(vector, dim=0)[None])
    return logits
