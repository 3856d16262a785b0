"""MSCP: covariances of several layers stacked on each other, and their logarithms (He et al. 2018).

Maps of three layers are averaged down to the smallest one, groups of neighbouring channels are averaged so that the
matrix stays small, every channel is brought to mean zero and variance one over the image, and the logarithm of the
covariance of all channels goes to a linear SVM. With MRA the image is seen at three resolutions; where the paper leaves
open how they are joined, we average the logarithms.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mgcap import spectral
from mgcap.baselines.method import About, Tools, register
from mgcap.baselines.networks import NETWORKS, PUBLISHED, network, prepared
from mgcap.baselines.svm import DescriptorSvm
from mgcap.data.cache import Recipe
from mgcap.embedding import covariance
from mgcap.engines.torch import fold_batch_norms
from mgcap.head import to_vector

#: The layers, and how many neighbouring channels are averaged.
LAYERS = {
    "alexnet": (("conv3", "conv4", "conv5"), 4),
    "vgg16": (("conv3_3", "conv4_3", "conv5_3"), 4),
}
#: Sides of the image in pixels: one, or those of the multiresolution form.
ONE_RESOLUTION, RESOLUTIONS = (224,), (160, 224, 320)


def stacked(maps: Sequence[Tensor], together: int) -> Tensor:
    """Maps of several layers ``[B, C_i, h_i, w_i]`` as channels ``[B, C, N]`` of the smallest grid, standardised."""
    side = min(m.shape[-1] for m in maps)
    parts = []
    for m in maps:
        small = F.adaptive_avg_pool2d(m, side).flatten(2)
        parts.append(small.reshape(len(m), -1, together, side * side).mean(2))
    channels = torch.cat(parts, dim=1)
    centred = channels - channels.mean(-1, keepdim=True)
    return F.normalize(centred, dim=-1) * side  # variance one: the length is the root of the number of positions


class StackedCovariance:
    """The logarithm of the covariance of stacked layers, averaged over resolutions.

    Args:
        backbone: A name of :data:`LAYERS`.
        resolutions: Sides of the image in pixels.
        weights: ``imagenet``, or ``random`` for tests.
    """

    def __init__(self, backbone: str, resolutions: Sequence[int] = ONE_RESOLUTION, weights: str = "imagenet") -> None:
        self.backbone, self.resolutions, self.weights = backbone, tuple(resolutions), weights
        self.layers, self.together = LAYERS[backbone]
        self.recipe: Recipe = {
            "kind": "stacked covariance",
            "backbone": backbone,
            "layers": list(self.layers),
            "together": self.together,
            "resolutions": list(resolutions),
            "weights": weights,
            "torch": torch.__version__,
        }

    @torch.inference_mode()
    def rows(self, images: Tensor) -> Tensor:
        """See :class:`mgcap.baselines.method.Descriptor`."""
        total: list[Tensor] = []
        for side in self.resolutions:
            seen = prepared(images, self.backbone, side)
            parts = [self._logarithms(some) for some in torch.split(seen, 8)]
            total.append(torch.cat(parts))
        return torch.stack(total).mean(0)

    def _logarithms(self, seen: Tensor) -> Tensor:
        maps = []
        x = seen.contiguous(memory_format=torch.channels_last)
        for name, step in _opened(self.backbone, self.layers[-1], self.weights).items():
            x = step[0](x)
            if name in self.layers:
                maps.append(x)
            x = step[1](x)
        return to_vector(spectral.matrix_log(covariance(stacked(maps, self.together))))

    def numbers(self) -> int:
        """Parameters of the network."""
        steps = _opened(self.backbone, self.layers[-1], self.weights).values()
        return sum(p.numel() for step in steps for p in step.parameters())


@cache
def _opened(backbone: str, layer: str, weights: str) -> dict[str, nn.ModuleList]:
    """Each layer in two parts: with its activation, and what pools behind it."""
    found = fold_batch_norms(network(backbone, layer, weights))
    steps = {}
    for name, modules in found.steps():  # type: ignore[operator]
        parts = list(modules.children())
        steps[name] = nn.ModuleList([nn.Sequential(*parts[:2]), nn.Sequential(*parts[2:])])
    return steps


def _register(backbone: str, resolutions: Sequence[int]) -> None:
    title, _ = NETWORKS[backbone]
    layers, together = LAYERS[backbone]
    several = len(resolutions) > 1

    def make(tools: Tools) -> DescriptorSvm:
        descriptor = StackedCovariance(backbone, resolutions)
        return DescriptorSvm(tools, descriptor, frozen=descriptor.numbers())

    register(
        About(
            name=f"mscp{'-mra' if several else ''}-{backbone}",
            title=f"MSCP{'+MRA' if several else ''}, {title}",
            family="deep, frozen",
            source="He et al. 2018",
            what=f"log-covariance of {', '.join(layers)}, {together} channels averaged together"
            + (f", images of {', '.join(map(str, resolutions))} pixels" if several else "")
            + "; linear SVM",
            published=f"MSCP{'+MRA' if several else ''} with {PUBLISHED[backbone]}",
            needs=(f"weights:{backbone}",),
        ),
        make,
    )


for _name in LAYERS:
    _register(_name, ONE_RESOLUTION)
    _register(_name, RESOLUTIONS)
