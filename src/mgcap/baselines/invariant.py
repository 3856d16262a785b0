r"""IDCCP: covariances averaged over the eight turns and mirrors of the image, and compressed (Wang et al. 2021).

An average over the group D4 does not change when the image is turned by a quarter or mirrored. The compression
:math:`W^\top C W` with orthonormal columns is learnt there on the Stiefel manifold; with a frozen network we take
the leading eigenvectors of the mean covariance of the training images, which keep most of it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from mgcap import spectral
from mgcap.baselines.method import About, Array, Tools, register
from mgcap.baselines.networks import NETWORKS, Layer
from mgcap.baselines.svm import count_numbers, linear_svm
from mgcap.data.stream import Item
from mgcap.embedding import covariance, normalise_features
from mgcap.head import descriptor_vector, from_upper_triangle, upper_triangle

#: Columns of the compression.
COMPRESSED = 128


def dihedral(images: Tensor) -> list[Tensor]:
    """The eight turns by quarters and mirrors of images ``[..., H, W]``."""
    return [torch.rot90(seen, quarter, (-2, -1)) for seen in (images, images.flip(-1)) for quarter in range(4)]


class GroupCovariance(Layer):
    """The covariance of a layer's positions, averaged over D4: its upper triangle."""

    def __init__(self, backbone: str, layer: str, engine: str = "auto", weights: str = "imagenet") -> None:
        super().__init__(backbone, layer, _second_order, "covariance over D4", engine, weights)

    def rows(self, images: Tensor) -> Tensor:
        """See :class:`mgcap.baselines.method.Descriptor`."""
        return torch.stack([super(GroupCovariance, self).rows(seen) for seen in dihedral(images)]).mean(0)


def _second_order(features: Tensor) -> Tensor:
    return upper_triangle(covariance(normalise_features(features.flatten(2))))


class Idccp:
    """See the module.

    Args:
        tools: What methods share.
        descriptor: The covariance over D4.
        channels: Columns of the compression.
    """

    def __init__(self, tools: Tools, descriptor: GroupCovariance, channels: int = COMPRESSED) -> None:
        self.tools, self.descriptor, self.channels = tools, descriptor, channels
        self.machine = linear_svm(tools.seed)

    def fit(self, images: Sequence[Item], labels: Sequence[str]) -> Idccp:
        """Learn compression and machine."""
        sums = [matrices.sum(0) for matrices in self._matrices(images)]
        _, vectors = torch.linalg.eigh(torch.stack(sums).sum(0) / len(images))
        self.compression = vectors[:, -self.channels :]
        self.machine.fit(self._rows(images), np.asarray(labels))
        return self

    def predict(self, images: Sequence[Item]) -> Array:
        """The label of each image."""
        labels: Array = self.machine.predict(self._rows(images))
        return labels

    def parameters(self) -> int:
        """Numbers of network, compression and machine."""
        numbers: int = self.descriptor.numbers() + self.compression.numel() + count_numbers(self.machine)
        return numbers

    def _matrices(self, images: Sequence[Item]) -> list[Tensor]:
        blocks = (images[start : start + 32] for start in range(0, len(images), 32))
        return [from_upper_triangle(self.tools.describe(self.descriptor, block)) for block in blocks]

    def _rows(self, images: Sequence[Item]) -> Array:
        w = self.compression
        roots = (spectral.matrix_sqrt(w.T @ matrices @ w) for matrices in self._matrices(images))
        rows: Array = torch.cat([descriptor_vector(root) for root in roots]).numpy()
        return rows


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
        lambda tools: Idccp(tools, GroupCovariance(backbone, layer, tools.engine)),
    )


_register("vgg16")
