"""The simplest use of a network: features averaged over positions, and a linear softmax solved to convergence."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from mgcap.baselines.method import About, Tools, register
from mgcap.baselines.networks import Layer, averaged
from mgcap.baselines.softmax import ExactSoftmax
from mgcap.data.stream import Item


class AveragedSoftmax(ExactSoftmax):
    """Averaged features and logistic regression, its strength chosen by cross-validation.

    Args:
        tools: What methods share.
        descriptor: The averaged features.
    """

    def __init__(self, tools: Tools, descriptor: Layer) -> None:
        self.tools, self.descriptor = tools, descriptor

    def rows(self, images: Sequence[Item]) -> Tensor:
        """The averaged features."""
        return self.tools.describe(self.descriptor, images)

    def parameters(self) -> int:
        """Numbers of network and softmax."""
        return self.descriptor.numbers() + self.head_numbers()


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
        lambda tools: AveragedSoftmax(
            tools, Layer(backbone, layer, averaged, "average", tools.engine, device=tools.torch_device())
        ),
    )


_register("gap-vgg16", "VGG-16 averaged + softmax", "vgg16", "conv5_3")
_register("gap-resnet50", "ResNet-50 averaged + softmax", "resnet50-v1", "stage5")
