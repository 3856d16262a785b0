"""The simplest use of a network: features averaged over positions, and a linear softmax solved to convergence."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mgcap.baselines.method import About, Array, Tools, register
from mgcap.baselines.networks import Layer, averaged
from mgcap.data.stream import Item
from mgcap.training.softmax import solve_head


class AveragedSoftmax:
    """Averaged features and logistic regression, its strength chosen by cross-validation.

    Args:
        tools: What methods share.
        descriptor: The averaged features.
    """

    def __init__(self, tools: Tools, descriptor: Layer) -> None:
        self.tools, self.descriptor = tools, descriptor

    def fit(self, images: Sequence[Item], labels: Sequence[str]) -> AveragedSoftmax:
        """Learn the softmax."""
        self.classes, targets = np.unique(np.asarray(labels), return_inverse=True)
        rows = self.tools.describe(self.descriptor, images)
        self.head = solve_head(rows, targets.tolist(), len(self.classes))
        return self

    def predict(self, images: Sequence[Item]) -> Array:
        """The label of each image."""
        logits = self.tools.describe(self.descriptor, images) @ self.head.weight.T + self.head.bias
        labels: Array = self.classes[logits.argmax(1).numpy()]
        return labels

    def parameters(self) -> int:
        """Numbers of network and softmax."""
        return self.descriptor.numbers() + self.head.weight.numel() + self.head.bias.numel()


def _register(name: str, title: str, backbone: str, layer: str) -> None:
    register(
        About(
            name=name,
            title=title,
            family="deep, frozen",
            source="Lin et al. 2014",
            what=f"{layer} averaged over positions, logistic regression",
            needs=(f"weights:{backbone}",),
        ),
        lambda tools: AveragedSoftmax(tools, Layer(backbone, layer, averaged, "average", tools.engine)),
    )


_register("gap-vgg16", "VGG-16 averaged + softmax", "vgg16", "conv5_3")
_register("gap-resnet50", "ResNet-50 averaged + softmax", "resnet50-v1", "stage5")
