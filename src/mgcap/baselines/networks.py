"""Frozen ImageNet networks as descriptors: what a layer gives for the whole image."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mgcap.backbones import build_backbone, find_backbone
from mgcap.backbones.pretrained import load_weights
from mgcap.baselines.method import About, Tools, register, standard
from mgcap.baselines.svm import DescriptorSvm
from mgcap.data.synthetic import calibration_scenes
from mgcap.inference.engines import Engine, choose_engine, open_engine
from mgcap.persistence.cache import Recipe
from mgcap.runtime import seeded

#: What the networks see.
INPUT = 224
CPU = torch.device("cpu")
#: Our names of the networks, as tables write them, and the layer that is tapped.
NETWORKS = {"alexnet": ("AlexNet", "conv5"), "googlenet": ("GoogLeNet", "inception5b"), "vgg16": ("VGG-16", "conv5_3")}
#: What published tables call them.
PUBLISHED = {"alexnet": "AlexNet", "googlenet": "GoogLeNet", "vgg16": "VGG-D"}


class Layer:
    """Activated features of a layer of a network with its ImageNet weights, in one vector.

    Args:
        backbone: A name of the registry.
        layer: Which layer.
        gather: From the map ``[B, C, h, w]`` to ``[B, d]``.
        how: A name for that, which says everything that matters.
        engine: Computes it.
        weights: ``imagenet``, or ``random`` for tests.
        device: Where.
    """

    def __init__(
        self,
        backbone: str,
        layer: str,
        gather: Callable[[Tensor], Tensor],
        how: str,
        engine: str = "auto",
        weights: str = "imagenet",
        device: torch.device = CPU,
    ) -> None:
        self.backbone, self.gather, self.device = backbone, gather, device
        self.engine, self.size = _opened(backbone, layer, weights, engine, device)
        self.recipe: Recipe = {
            "kind": "layer",
            "backbone": backbone,
            "layer": layer,
            "how": how,
            "weights": weights,
            "engine": self.engine.fingerprint,
        }

    @torch.inference_mode()
    def rows(self, images: Tensor) -> Tensor:
        """See :class:`mgcap.baselines.method.Descriptor`."""
        seen = prepared(images.to(self.device), self.backbone)
        return self.gather(as_maps(self.engine.features(seen, 0))).cpu()

    def numbers(self) -> int:
        """Parameters of the network."""
        return self.size


def as_maps(features: Tensor) -> Tensor:
    """``[B, C, N]``, N the positions of a square, ``-> [B, C, h, w]``."""
    side = round(features.shape[-1] ** 0.5)
    return features.reshape(*features.shape[:2], side, side)


def prepared(images: Tensor, backbone: str, side: int = INPUT) -> Tensor:
    """Images as a network wants them: 224 x 224 pixels by default, its own mean and standard deviation."""
    spec = find_backbone(backbone)
    small = F.interpolate(images, (side, side), mode="bilinear", antialias=True)
    mean, std = (torch.tensor(value, device=images.device).view(3, 1, 1) for value in (spec.mean, spec.std))
    return (small - mean) / std


def network(backbone: str, layer: str, weights: str = "imagenet", activated: bool = True) -> nn.Module:
    """A network up to a layer with its weights."""
    with seeded(0):
        found = build_backbone(backbone, layer, activated).eval()
    if weights != "random":
        found.load_state_dict(load_weights(backbone).state)
    return found


def open_frozen(layers: nn.Module, backbone: str, engine: str) -> Engine:
    """Layers of a network that see whole images, made ready to run; int8 is calibrated on drawn scenes."""
    name = choose_engine(engine, next(layers.parameters(), torch.empty(0)).device.type)
    return open_engine(
        name, [layers], INPUT, lambda: [prepared(standard(s)[None], backbone)[0] for s in calibration_scenes()]
    )


@cache
def _opened(backbone: str, layer: str, weights: str, engine: str, device: torch.device) -> tuple[Engine, int]:
    found = network(backbone, layer, weights).to(device)
    return open_frozen(found, backbone, engine), sum(p.numel() for p in found.parameters())


def averaged(features: Tensor) -> Tensor:
    """The mean over positions."""
    return features.mean((-2, -1))


def _register(backbone: str) -> None:
    title, layer = NETWORKS[backbone]

    def make(tools: Tools) -> DescriptorSvm:
        descriptor = Layer(backbone, layer, averaged, "average", tools.engine, device=tools.torch_device())
        return DescriptorSvm(tools, descriptor, frozen=descriptor.numbers())

    register(
        About(
            name=f"{backbone}-svm",
            title=f"{title} + SVM, frozen",
            family="deep, frozen",
            source="Penatti et al. 2015; Xia et al. 2017",
            what=f"{layer} averaged over positions, unit length, linear SVM; papers take the first fully connected "
            "layers, whose weights the package registries do not carry",
            published=f"{PUBLISHED[backbone]}, transferred",
            needs=(f"weights:{backbone}",),
        ),
        make,
    )


for _name in NETWORKS:
    _register(_name)
