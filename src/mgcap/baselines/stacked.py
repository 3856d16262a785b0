"""MSCP: the covariance of several layers stacked on each other, and its logarithm (He et al. 2018).

Maps of three layers before their activation are brought to the size of the smallest one, neighbouring channels are
averaged until each layer has 80 (AlexNet) or 130 (VGG-16), every channel is scaled to unit length over the image, and
the logarithm of the covariance of all channels, with a strong ridge, goes to a linear SVM that compares classes in
pairs. All of that is as in the authors' program, but for the last group of a layer, which there takes whatever
channels are left over and here is as large as the others. With MRA the image is seen at three resolutions; where the
paper leaves open which and how they are joined, we average the logarithms.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mgcap import spectral
from mgcap.baselines.method import About, Tools, register
from mgcap.baselines.networks import CPU, NETWORKS, PUBLISHED, network, prepared
from mgcap.baselines.svm import SvmMethod, pairwise_svm
from mgcap.data.stream import Item
from mgcap.embedding import covariance
from mgcap.head import to_vector
from mgcap.inference.engines.probe import fast_bf16
from mgcap.inference.engines.torch import fold_batch_norms
from mgcap.persistence.cache import Recipe

#: The layers, and to how many channels each is averaged.
LAYERS = {
    "alexnet": (("conv3", "conv4", "conv5"), 80),
    "vgg16": (("conv3_3", "conv4_3", "conv5_3"), 130),
}
#: What is added to the diagonal of the covariance; the channels' variances are below one over the number of positions.
RIDGE = 0.005
#: Sides of the image in pixels: one, or those of the multiresolution form.
ONE_RESOLUTION, RESOLUTIONS = (224,), (160, 224, 320)


def stacked(maps: Sequence[Tensor], channels: int) -> Tensor:
    """Maps of several layers ``[B, C_i, h_i, w_i]`` as channels ``[B, C, N]`` of the smallest grid, of unit length."""
    side = min(m.shape[-1] for m in maps)
    parts = []
    for m in maps:
        small = F.interpolate(m, (side, side), mode="bilinear", antialias=True).flatten(2)
        parts.append(F.adaptive_avg_pool1d(small.mT, channels).mT)
    return F.normalize(torch.cat(parts, dim=1), dim=-1)


class StackedCovariance:
    """The logarithm of the covariance of stacked layers.

    Args:
        backbone: A name of :data:`LAYERS`.
        side: Of the image in pixels.
        weights: ``imagenet``, or ``random`` for tests.
        bf16: Compute the layers in bf16.
    """

    def __init__(
        self, backbone: str, side: int = 224, weights: str = "imagenet", bf16: bool = False, device: torch.device = CPU
    ) -> None:
        self.backbone, self.side, self.weights, self.bf16, self.device = backbone, side, weights, bf16, device
        self.layers, self.channels = LAYERS[backbone]
        self.recipe: Recipe = {
            "kind": "stacked covariance",
            "backbone": backbone,
            "layers": list(self.layers),
            "channels": self.channels,
            "ridge": RIDGE,
            "side": side,
            "weights": weights,
            "bf16": bf16,
            "torch": torch.__version__,
        }

    @torch.inference_mode()
    def rows(self, images: Tensor) -> Tensor:
        """See :class:`mgcap.baselines.method.Descriptor`."""
        seen = prepared(images.to(self.device), self.backbone, self.side)
        return torch.cat([self._logarithms(some).cpu() for some in torch.split(seen, 8)])

    def _logarithms(self, seen: Tensor) -> Tensor:
        maps = []
        x = seen.contiguous(memory_format=torch.channels_last)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.bf16):
            for name, (convolution, rest) in _opened(self.backbone, self.layers[-1], self.weights, self.device).items():
                x = convolution(x)
                if name in self.layers:
                    maps.append(x.to(torch.float32, copy=True))  # activations work in place
                x = rest(x)
        matrix = covariance(stacked(maps, self.channels), ridge=0, unbiased=True)
        matrix.diagonal(dim1=-2, dim2=-1).add_(RIDGE)
        return to_vector(spectral.matrix_log(matrix))

    def numbers(self) -> int:
        """Parameters of the network."""
        steps = _opened(self.backbone, self.layers[-1], self.weights, self.device).values()
        return sum(p.numel() for step in steps for p in step.parameters())


class StackedCovarianceSvm(SvmMethod):
    """Logarithms of stacked covariances, averaged over resolutions, and a linear SVM on them as they are.

    Args:
        tools: What methods share.
        backbone: A name of :data:`LAYERS`.
        resolutions: Sides of the image in pixels.
        weights: ``imagenet``, or ``random`` for tests.
    """

    def __init__(
        self, tools: Tools, backbone: str, resolutions: Sequence[int] = ONE_RESOLUTION, weights: str = "imagenet"
    ) -> None:
        super().__init__(tools, pairwise_svm)
        self.views = [
            StackedCovariance(backbone, side, weights, fast_bf16(), tools.torch_device()) for side in resolutions
        ]

    def rows(self, images: Sequence[Item]) -> Tensor:
        """The averaged logarithms."""
        return torch.stack([self.tools.describe(view, images) for view in self.views]).mean(0)

    def numbers(self) -> int:
        """Those of the network."""
        return self.views[0].numbers()


@cache
def _opened(backbone: str, layer: str, weights: str, device: torch.device) -> dict[str, nn.ModuleList]:
    """Each layer in two parts: its convolution, and what comes behind it."""
    found = fold_batch_norms(network(backbone, layer, weights)).to(device)
    steps = {}
    for name, modules in found.steps():  # type: ignore[operator]
        parts = list(modules.children())
        steps[name] = nn.ModuleList([parts[0], nn.Sequential(*parts[1:])])
    return steps


def _register(backbone: str, resolutions: Sequence[int]) -> None:
    title, _ = NETWORKS[backbone]
    layers, channels = LAYERS[backbone]
    several = len(resolutions) > 1
    register(
        About(
            name=f"mscp{'-mra' if several else ''}-{backbone}",
            title=f"MSCP{'+MRA' if several else ''}, {title}",
            family="deep, frozen",
            source="He et al. 2018",
            what=f"log-covariance of {', '.join(layers)}, averaged to {channels} channels each"
            + (f", images of {', '.join(map(str, resolutions))} pixels" if several else "")
            + "; linear SVM",
            published=f"MSCP{'+MRA' if several else ''} with {PUBLISHED[backbone]}",
            needs=(f"weights:{backbone}",),
        ),
        lambda tools: StackedCovarianceSvm(tools, backbone, resolutions),
    )


for _name in LAYERS:
    _register(_name, ONE_RESOLUTION)
    _register(_name, RESOLUTIONS)
