"""Convolutional networks f_e (Eq. 3), cut at the layer that is tapped.

Parameter names are torchvision's, so its state dicts load as they are; what lies behind the tap is dropped.
Each entry of the registry carries its own preprocessing: the mean and standard deviation of RGB in [0, 1].
"""

from __future__ import annotations

import difflib
import re
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from mgcap.googlenet import LAYERS as _GOOGLENET_LAYERS
from mgcap.googlenet import GoogLeNet
from mgcap.tapped import Tapped

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
#: Keras' "caffe" preprocessing, 0..255 minus the mean, written for RGB in [0, 1].
CAFFE_MEAN = (123.68 / 255, 116.779 / 255, 103.939 / 255)
CAFFE_STD = (1 / 255, 1 / 255, 1 / 255)


@dataclass(frozen=True)
class BackboneSpec:
    """One entry of the registry."""

    name: str
    summary: str
    build: Callable[[str, bool], nn.Module]
    layers: dict[str, int]  # name -> channels, in order of depth
    default_layer: str
    mean: tuple[float, float, float] = IMAGENET_MEAN
    std: tuple[float, float, float] = IMAGENET_STD
    strict: bool = field(default=True)  # False: layers are not known before the network is built

    def width(self, layer: str) -> int | None:
        """Channels of a layer; raises when there is no such layer."""
        if layer in self.layers:
            return self.layers[layer]
        if not self.strict:
            return None
        raise ValueError(f"layer: {self.name} has no layer '{layer}'; allowed are {', '.join(self.layers)}")


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


class TimmFeatures(nn.Module):
    """Any timm model that can return feature maps; needs ``pip install timm``."""

    def __init__(self, layer: str, activated: bool, *, name: str) -> None:
        super().__init__()
        try:
            import timm
        except Exception as error:  # a broken torchvision fails with RuntimeError, not ImportError
            raise ValueError(
                f"backbone: 'timm:{name}' needs timm and a working torchvision (pip install timm): {error}"
            ) from error
        if not layer.startswith("stage") or not layer[5:].isdigit():
            raise ValueError(f"layer: a timm backbone takes 'stage1', 'stage2', ..., not '{layer}'")
        if not activated:
            raise ValueError("activated: timm backbones return activated features only; use activated=True")
        try:
            self.net = timm.create_model(name, pretrained=False, features_only=True, out_indices=(int(layer[5:]) - 1,))
        except Exception as error:
            raise ValueError(f"backbone: timm cannot build '{name}' with {layer}: {error}") from error

    def forward(self, x: Tensor) -> Tensor:
        """Map images ``[B, 3, H, W]`` to features ``[B, C, H', W']``."""
        out: Tensor = self.net(x)[0]
        return out


def split_backbone(backbone: nn.Module, first: str) -> tuple[nn.Sequential, nn.Sequential]:
    """A network in two parts that share its parameters: what comes before a layer, and that layer with all behind it.

    Args:
        backbone: As :func:`build_backbone` makes it.
        first: The first layer of the second part (``conv5_1``; ``stage4`` or its second block, ``stage4.2``); ``all``
            puts everything there.

    Raises:
        ValueError: If there is no such layer.
    """
    if first == "all":
        return nn.Sequential(), nn.Sequential(backbone)
    names = [name for name, _ in backbone.steps()] if isinstance(backbone, Tapped) else []
    first = f"{first}.1" if f"{first}.1" in names else first
    if first not in names:
        names = [name.removesuffix(".1") for name in names]
        raise ValueError(f"there is no layer '{first}' to begin with; allowed are {', '.join(['all', *names])}")
    modules = [module for _, module in backbone.steps()]  # type: ignore[operator]
    cut = names.index(first)
    return nn.Sequential(*modules[:cut]), nn.Sequential(*modules[cut:])


def _plain(name: str, summary: str, make: Callable[[], list[tuple[str, nn.Module]]], default: str) -> BackboneSpec:
    with torch.device("meta"):
        widths = {n: int(m.out_channels) for n, m in make() if isinstance(m, nn.Conv2d)}
    return BackboneSpec(
        name, summary, lambda layer, activated: PlainCNN(make(), layer, activated), widths, default_layer=default
    )


def _resnet(
    name: str, summary: str, block: type[BasicBlock] | type[Bottleneck], depths: Sequence[int], **kw: Any
) -> BackboneSpec:
    widths = {"stage1": 64, **{f"stage{i + 2}": 64 * 2**i * block.expansion for i in range(4)}}
    spec_kw = {key: kw.pop(key) for key in ("mean", "std") if key in kw}
    return BackboneSpec(
        name, summary, partial(ResNet, block=block, depths=depths, **kw), widths, default_layer="stage4", **spec_kw
    )


#: Every backbone that needs no optional package, by name.
BACKBONES: dict[str, BackboneSpec] = {
    spec.name: spec
    for spec in (
        _plain("vgg16", "VGG-16 (the paper's VGG-D)", partial(_vgg_modules, (2, 2, 3, 3, 3)), "conv5_3"),
        _plain("vgg19", "VGG-19", partial(_vgg_modules, (2, 2, 4, 4, 4)), "conv5_4"),
        _plain("alexnet", "AlexNet (torchvision's)", _alexnet_modules, "conv5"),
        BackboneSpec(
            "googlenet",
            "GoogLeNet with batch norms (torchvision's)",
            GoogLeNet,
            _GOOGLENET_LAYERS,
            default_layer="inception5b",
            mean=(0.5, 0.5, 0.5),
            std=(0.5, 0.5, 0.5),
        ),
        _resnet("resnet18", "ResNet-18", BasicBlock, (2, 2, 2, 2)),
        _resnet("resnet34", "ResNet-34", BasicBlock, (3, 4, 6, 3)),
        _resnet("resnet50", "ResNet-50 v1.5 (torchvision's)", Bottleneck, (3, 4, 6, 3)),
        _resnet(
            "resnet50-v1",
            "ResNet-50 v1 (Keras' weights)",
            Bottleneck,
            (3, 4, 6, 3),
            eps=1e-3,
            v1=True,
            mean=CAFFE_MEAN,
            std=CAFFE_STD,
        ),
    )
}


def backbone_spec(name: str) -> BackboneSpec:
    """Look a backbone up; the error of an unknown name lists the known ones.

    Args:
        name: A key of :data:`BACKBONES`, or ``timm:NAME``.

    Returns:
        How to build it, its layers and its preprocessing.
    """
    if name in BACKBONES:
        return BACKBONES[name]
    if re.fullmatch(r"timm:[\w.-]+", name, re.ASCII):  # no hf-hub: or local-dir:, which a model file could ask for
        build = partial(TimmFeatures, name=name[len("timm:") :])
        return BackboneSpec(name, "a timm model", build, {}, default_layer="stage4", strict=False)
    if name.startswith("timm:"):
        raise ValueError("backbone: a network of timm has letters, digits and points, as timm:convnext_tiny")
    close = difflib.get_close_matches(name, BACKBONES, n=1)
    hint = f" (did you mean '{close[0]}'?)" if close else ""
    raise ValueError(f"backbone: '{name}' is unknown{hint}; allowed are {', '.join(BACKBONES)} and timm:NAME")


def build_backbone(name: str, layer: str | None = None, activated: bool = True) -> nn.Module:
    """Build a backbone with random weights, cut at ``layer``.

    Args:
        name: A key of :data:`BACKBONES`, or ``timm:NAME``.
        layer: The layer to tap, by default the one the backbone is best known for.
        activated: Whether to tap after the layer's activation or before.

    Returns:
        A module from images ``[B, 3, H, W]``, normalised, to features ``[B, C, H', W']``.
    """
    spec = backbone_spec(name)
    layer = layer or spec.default_layer
    spec.width(layer)
    return spec.build(layer, activated)
