r"""IDCCP: covariances averaged over the rotations and reflections of the image, and compressed (Wang et al. 2021).

An average over the group D4 does not change when the image is rotated by 90 degrees or mirrored. The compression
:math:`W^\top C W` with orthonormal columns is learnt there on the Stiefel manifold; with a frozen network we take
the leading eigenvectors of the mean covariance of the training images, which keep most of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from mgcap import spectral
from mgcap.baselines.method import About, Tools, register
from mgcap.baselines.networks import CPU, NETWORKS, Layer
from mgcap.baselines.svm import SvmMethod
from mgcap.data.stream import Item
from mgcap.embedding import covariance, normalise_features
from mgcap.head import descriptor_vector, from_upper_triangle, upper_triangle

#: Columns of the compression.
COMPRESSED = 128


def dihedral(images: Tensor) -> list[Tensor]:
    """The eight rotations by multiples of 90 degrees and reflections of images ``[..., H, W]``."""
    return [torch.rot90(seen, quarter, (-2, -1)) for seen in (images, images.flip(-1)) for quarter in range(4)]


class GroupCovariance(Layer):
    """The covariance of a layer's positions, averaged over D4: its upper triangle."""

    def __init__(
        self,
        backbone: str,
        layer: str,
        engine: str = "auto",
        weights: str = "imagenet",
        device: torch.device = CPU,
    ) -> None:
        super().__init__(backbone, layer, _second_order, "covariance over D4", engine, weights, device)

    def rows(self, images: Tensor) -> Tensor:
        """See :class:`mgcap.baselines.method.Descriptor`."""
        return torch.stack([super(GroupCovariance, self).rows(seen) for seen in dihedral(images)]).mean(0)


def _second_order(features: Tensor) -> Tensor:
    return upper_triangle(covariance(normalise_features(features.flatten(2))))


class Idccp(SvmMethod):
    """See the module.

    Args:
        tools: What methods share.
        descriptor: The covariance over D4.
        channels: Columns of the compression.
    """

    def __init__(self, tools: Tools, descriptor: GroupCovariance, channels: int = COMPRESSED) -> None:
        super().__init__(tools)
        self.descriptor, self.channels = descriptor, channels

    def learn(self, images: Sequence[Item], labels: Sequence[str]) -> None:
        """Learn the compression."""
        sums = [matrices.sum(0) for matrices in self._matrices(images)]
        _, vectors = torch.linalg.eigh(torch.stack(sums).sum(0) / len(images))
        self.compression = vectors[:, -self.channels :]

    def rows(self, images: Sequence[Item]) -> Tensor:
        """Roots of the compressed covariances."""
        w = self.compression
        roots = (spectral.matrix_sqrt(w.T @ matrices @ w) for matrices in self._matrices(images))
        return torch.cat([descriptor_vector(root) for root in roots])

    def numbers(self) -> int:
        """Those of network and compression."""
        return self.descriptor.numbers() + int(self.compression.numel())

    def _matrices(self, images: Sequence[Item]) -> Iterator[Tensor]:
        blocks = (images[start : start + 32] for start in range(0, len(images), 32))
        return (from_upper_triangle(self.tools.describe(self.descriptor, block)) for block in blocks)


def _register(backbone: str) -> None:
    title, layer = NETWORKS[backbone]
    register(
        About(
            name=f"idccp-{backbone}",
            title=f"IDCCP, {title} frozen",
            family="deep, frozen",
            source="Wang et al. 2021",
            what=f"covariance of {layer} over D4, compressed to {COMPRESSED} channels, square root, linear SVM",
            needs=(f"weights:{backbone}",),
        ),
        lambda tools: Idccp(tools, GroupCovariance(backbone, layer, tools.engine, device=tools.torch_device())),
    )


_register("vgg16")
