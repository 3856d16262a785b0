r"""Channels C -> C' before the embedding, so that covariances stay compact.

PCA is fitted on local features of training images with the backbone frozen: :math:`f' = V^\top (f-m)` with the
leading eigenvectors :math:`V` of their covariance.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class FeatureMoments:
    """Running mean and covariance of local features, in float64."""

    def __init__(self, channels: int) -> None:
        self.count = 0
        self.total = torch.zeros(channels, dtype=torch.float64)
        self.second = torch.zeros(channels, channels, dtype=torch.float64)

    def add(self, features: Tensor) -> None:
        """Take in features ``[..., C, N]``."""
        flat = features.detach().transpose(-1, -2).reshape(-1, features.shape[-2])
        self.count += flat.shape[0]
        self.total += flat.sum(0).double().cpu()
        self.second += (flat.T @ flat).double().cpu()

    def principal_axes(self, channels: int) -> tuple[Tensor, Tensor]:
        """Mean ``[C]`` and the leading ``channels`` axes ``[C', C]``, by falling variance, signs fixed."""
        if self.count < 2:
            raise ValueError("PCA needs local features of at least two positions")
        mean = self.total / self.count
        covariance = self.second / self.count - torch.outer(mean, mean)
        axes = torch.linalg.eigh(covariance).eigenvectors.flip(-1)[:, :channels].T
        strongest = axes.gather(1, axes.abs().argmax(1, keepdim=True))
        return mean, axes * strongest.sign()


class Reduction(nn.Module):
    """A linear map of the channels: none, PCA (buffers, fitted) or learnt (parameters)."""

    basis: Tensor
    mean: Tensor
    fitted: Tensor

    def __init__(self, kind: str, channels_in: int, channels_out: int | None) -> None:
        super().__init__()
        self.kind = kind
        self.channels_in = channels_in
        self.channels = channels_in if kind == "none" or channels_out is None else channels_out
        if kind == "none":
            return
        # Until it is fitted or trained: a random projection that keeps lengths on average, the same in every run.
        generator = torch.Generator().manual_seed(0)
        basis = torch.linalg.qr(torch.randn(channels_in, self.channels, generator=generator)).Q.T.contiguous()
        if kind == "pca":
            self.register_buffer("basis", basis)
            self.register_buffer("mean", torch.zeros(channels_in))
            self.register_buffer("fitted", torch.tensor(False))
        else:
            self.basis = nn.Parameter(basis)
            self.mean = nn.Parameter(torch.zeros(channels_in))

    def fit(self, moments: FeatureMoments) -> None:
        """Set the PCA from the moments of training features."""
        if self.kind != "pca":
            raise ValueError("only reduction='pca' is fitted to features")
        mean, axes = moments.principal_axes(self.channels)
        self.mean.copy_(mean)
        self.basis.copy_(axes)
        self.fitted.fill_(True)

    def forward(self, features: Tensor) -> Tensor:
        """``[..., C, N] -> [..., C', N]``."""
        if self.kind == "none":
            return features
        return self.basis @ features - (self.basis @ self.mean).unsqueeze(-1)
