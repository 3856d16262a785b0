"""What is known of a backbone: how to build it, its layers, the statistics of its input, and where its weights are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor, nn

from mgcap.backbones.readers import read_torch
from mgcap.persistence.downloads import Source, UrlSource

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
#: Keras' "caffe" preprocessing, 0..255 minus the mean, written for RGB in [0, 1].
CAFFE_MEAN = (123.68 / 255, 116.779 / 255, 103.939 / 255)
CAFFE_STD = (1 / 255, 1 / 255, 1 / 255)

#: Reads a downloaded file as a state dict with the backbone's names.
Reader = Callable[[Path], dict[str, Tensor]]


def torchvision_file(file: str, sha256: str) -> tuple[Source, Reader]:
    """A file of torchvision's; its name carries the first digits of its hash."""
    return UrlSource(f"https://download.pytorch.org/models/{file}", sha256), read_torch


@dataclass(frozen=True)
class Published:
    """Weights that can be fetched.

    Attributes:
        licence: Of the weights, and whose they are.
        sources: Where to get them, in turn, each with what reads the file.
        sha256: Hash of the tensors; empty where only those of the files are known.
    """

    licence: str
    sources: tuple[tuple[Source, Reader], ...]
    sha256: str = ""


@dataclass(frozen=True)
class Backbone:
    """One backbone.

    Attributes:
        name: What ``--backbone`` takes.
        summary: One line on it.
        build: From a layer to tap, and whether to tap it behind its activation, to a network ``[B, 3, H, W] ->
            [B, C, H', W']``.
        layers: The layers that can be tapped with their channels, by depth.
        default_layer: The one it is best known for.
        weights: ImageNet weights, if there are any to fetch.
        mean: Of RGB in [0, 1], subtracted from images.
        std: Images are divided by it.
        strict: False where layers are not known before the network is built.
    """

    name: str
    summary: str
    build: Callable[[str, bool], nn.Module]
    layers: dict[str, int]
    default_layer: str
    weights: Published | None = None
    mean: tuple[float, float, float] = IMAGENET_MEAN
    std: tuple[float, float, float] = IMAGENET_STD
    strict: bool = True

    def width(self, layer: str) -> int | None:
        """Channels of a layer; raises when there is no such layer."""
        if layer in self.layers:
            return self.layers[layer]
        if not self.strict:
            return None
        raise ValueError(f"layer: {self.name} has no layer '{layer}'; allowed are {', '.join(self.layers)}")
