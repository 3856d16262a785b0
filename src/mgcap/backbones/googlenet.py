"""GoogLeNet (Szegedy et al. 2015) as torchvision has it: batch norms, and 3 x 3 kernels where the paper has 5 x 5."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from mgcap.backbones.record import Backbone, Published, torchvision_file
from mgcap.backbones.tapped import Tapped

#: Of each inception block: channels before; of the 1 x 1 branch; before and behind the two 3 x 3; behind the pooling.
_BLOCKS = {
    "inception3a": (192, 64, 96, 128, 16, 32, 32),
    "inception3b": (256, 128, 128, 192, 32, 96, 64),
    "inception4a": (480, 192, 96, 208, 16, 48, 64),
    "inception4b": (512, 160, 112, 224, 24, 64, 64),
    "inception4c": (512, 128, 128, 256, 24, 64, 64),
    "inception4d": (512, 112, 144, 288, 32, 64, 64),
    "inception4e": (528, 256, 160, 320, 32, 128, 128),
    "inception5a": (832, 256, 160, 320, 32, 128, 128),
    "inception5b": (832, 384, 192, 384, 48, 128, 128),
}
#: Layers that can be tapped, with their channels.
LAYERS = {"conv3": 192, **{name: n[1] + n[3] + n[5] + n[6] for name, n in _BLOCKS.items()}}


class ConvNormReLU(nn.Module):
    """Convolution, batch norm and ReLU."""

    def __init__(
        self,
        before: int,
        after: int,
        kernel: int | tuple[int, int],
        stride: int = 1,
        padding: int | tuple[int, int] = 0,
    ) -> None:
        super().__init__()
        self.conv = nn.Conv2d(before, after, kernel, stride, padding, bias=False)
        self.bn = nn.BatchNorm2d(after, eps=0.001)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        """The activated features."""
        out: Tensor = self.relu(self.bn(self.conv(x)))
        return out


class _Inception(nn.Module):
    """Four branches side by side."""

    def __init__(self, before: int, one: int, less: int, three: int, least: int, five: int, pooled: int) -> None:
        super().__init__()
        self.branch1 = ConvNormReLU(before, one, 1)
        self.branch2 = nn.Sequential(ConvNormReLU(before, less, 1), ConvNormReLU(less, three, 3, padding=1))
        self.branch3 = nn.Sequential(ConvNormReLU(before, least, 1), ConvNormReLU(least, five, 3, padding=1))
        pool = nn.MaxPool2d(3, 1, 1, ceil_mode=True)
        self.branch4 = nn.Sequential(pool, ConvNormReLU(before, pooled, 1))

    def forward(self, x: Tensor) -> Tensor:
        """The channels of all branches."""
        return torch.cat([self.branch1(x), self.branch2(x), self.branch3(x), self.branch4(x)], dim=1)


class GoogLeNet(Tapped):
    """GoogLeNet up to a layer.

    Args:
        layer: One of :data:`LAYERS`.
        activated: Must be true: the branches of a block end in their own activations.
    """

    def __init__(self, layer: str, activated: bool) -> None:
        super().__init__()
        if not activated:
            raise ValueError("activated: GoogLeNet gives activated features only; use activated=True")
        self.conv1 = ConvNormReLU(3, 64, 7, 2, 3)
        self.conv2 = ConvNormReLU(64, 64, 1)
        self.conv3 = ConvNormReLU(64, 192, 3, padding=1)
        self.pool = nn.MaxPool2d(3, 2, ceil_mode=True)
        self.small_pool = nn.MaxPool2d(2, 2, ceil_mode=True)
        self.blocks = list(_BLOCKS)[: list(LAYERS).index(layer)]
        for name in self.blocks:
            self.add_module(name, _Inception(*_BLOCKS[name]))

    def forward(self, x: Tensor) -> Tensor:
        """Map images ``[B, 3, H, W]`` to features ``[B, C, H', W']``."""
        for _, module in self.steps():
            x = module(x)
        return x

    def steps(self) -> list[tuple[str, nn.Module]]:
        """The stem, and each block with the pooling before it."""
        pools = {"inception3a": [self.pool], "inception4a": [self.pool], "inception5a": [self.small_pool]}
        stem = nn.Sequential(self.conv1, self.pool, self.conv2, self.conv3)
        blocks = [(name, nn.Sequential(*pools.get(name, []), self.get_submodule(name))) for name in self.blocks]
        return [("conv3", stem), *blocks]


RECORDS = (
    Backbone(
        "googlenet",
        "GoogLeNet with batch norms (torchvision's)",
        GoogLeNet,
        LAYERS,
        "inception5b",
        Published(
            "BSD-3-Clause (torchvision)",
            (
                torchvision_file(
                    "googlenet-1378be20.pth", "1378be20a8e875cf1568b8a71654e704449655e34711a959a38b04fb34905cef"
                ),
            ),
        ),
        mean=(0.5, 0.5, 0.5),
        std=(0.5, 0.5, 0.5),
    ),
)
