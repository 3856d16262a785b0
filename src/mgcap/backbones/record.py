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
        name: What ``backbone`` takes.
        summary: One line on it.
        build: From a layer to tap, and whether to tap it behind its activation, to a network ``[B, 3, H, W] ->
            [B, C, H', W']``.
        layers: The layers that can be tapped with their channels, by depth.
        default_layer: The one it is best known for.
        weights: ImageNet weights, if there are any to fetch.
        mean: Of RGB in [0, 1], subtracted from images.
        std: Images are divided by it.
        strict: False where layers are not known before the network is built.
        smallest: The smallest side of images that every layer can see.
        multiple: Sides of images must be multiples of it, as of a patch.
        fetch: Gives the state dict of the whole network from the library that the network belongs to.
        whole: Builds the whole network where that takes more than the last of the layers.
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
    smallest: int = 1
    multiple: int = 1
    fetch: Callable[[], dict[str, Tensor]] | None = None
    whole: Callable[[], nn.Module] | None = None

    def width(self, layer: str) -> int | None:
        """Channels of a layer; raises when there is no such layer."""
        if layer in self.layers:
            return self.layers[layer]
        if not self.strict:
            return None
        raise ValueError(f"layer: {self.name} has no layer '{layer}'; allowed are {', '.join(self.layers)}")

    def cut(self, layer: str | None = None, activated: bool = True) -> nn.Module:
        """The network with random weights, up to a layer; raises when there is no such layer."""
        layer = layer or self.default_layer
        self.width(layer)
        return self.build(layer, activated)

    def whole_network(self) -> nn.Module:
        """The network with random weights and all its layers."""
        return self.build(list(self.layers)[-1], True) if self.whole is None else self.whole()

    def check_size(self, size: int) -> None:
        """Raises when views of this side cannot be seen."""
        if size < self.smallest:
            raise ValueError(f"size: {self.name} takes views of {self.smallest} pixels or more, not {size}")
        if size % self.multiple:
            below = max(size // self.multiple, 1) * self.multiple
            raise ValueError(
                f"size: {self.name} takes multiples of {self.multiple} pixels, not {size}; "
                f"take {below} or {below + self.multiple}"
            )

    def input_statistics(self, network: nn.Module) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Mean and standard deviation of the input of a network of this record; it may know better than the record."""
        own = getattr(network, "statistics", None)
        return (self.mean, self.std) if own is None else own
