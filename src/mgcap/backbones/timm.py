"""Networks of the timm library, by name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from typing import Any

from torch import Tensor, nn

from mgcap.backbones.readers import one_line
from mgcap.backbones.record import IMAGENET_MEAN, IMAGENET_STD, Backbone
from mgcap.backbones.tapped import Tapped
from mgcap.errors import WeightsError

PREFIX = "timm:"


def _open(name: str) -> Any:
    try:
        import timm
    except Exception as error:  # a broken torchvision fails with RuntimeError, not ImportError
        raise ValueError(
            f"backbone: 'timm:{name}' needs timm and a working torchvision (pip install timm): {error}"
        ) from error
    return timm


class TimmFeatures(Tapped):
    """Any timm model that can return feature maps; needs ``pip install timm``.

    Args:
        layer: ``stage1``, ``stage2``, ..., or ``all`` for the whole network, as weights have it.
        activated: Must be true.
        name: Of the model. It is built with random weights: nothing is fetched.

    Attributes:
        statistics: Mean and standard deviation of the input, by the configuration of the model's own weights.
    """

    def __init__(self, layer: str, activated: bool, *, name: str) -> None:
        super().__init__()
        timm = _open(name)
        if layer != "all" and (not layer.startswith("stage") or not layer[5:].isdigit()):
            raise ValueError(f"layer: a timm backbone takes 'stage1', 'stage2', ..., not '{layer}'")
        if not activated:
            raise ValueError("activated: timm backbones return activated features only; use activated=True")
        cut = {} if layer == "all" else {"out_indices": (int(layer[5:]) - 1,)}
        try:
            self.net = timm.create_model(name, pretrained=False, features_only=True, **cut)
        except Exception as error:
            raise ValueError(f"backbone: timm cannot build '{name}' with {layer}: {error}") from error
        self.statistics = _statistics(getattr(self.net, "pretrained_cfg", None) or {})

    def forward(self, x: Tensor) -> Tensor:
        """Map images ``[B, 3, H, W]`` to features ``[B, C, H', W']``."""
        out: Tensor = self.net(x)[0]
        return out

    def steps(self) -> list[tuple[str, nn.Module]]:
        """None: timm takes its networks apart in ways of its own."""
        return []


def _statistics(config: Mapping[str, Any]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    return tuple(config.get("mean", IMAGENET_MEAN)), tuple(config.get("std", IMAGENET_STD))


def _fetch(name: str) -> dict[str, Tensor]:
    """The pretrained weights of the whole network; timm downloads them, or has them in its cache."""
    try:
        timm = _open(name)
        net = timm.create_model(name, pretrained=True, features_only=True)
    except Exception as error:
        raise WeightsError(f"timm cannot give the weights of '{name}': {one_line(error)}") from error
    return {f"net.{key}": tensor for key, tensor in net.state_dict().items()}


def timm_record(name: str) -> Backbone:
    """The record of ``timm:NAME``.

    Raises:
        ValueError: If the name could be more than that of a network: a model file could ask timm to fetch something.
    """
    if not re.fullmatch(r"timm:[\w.-]+", name, re.ASCII):
        raise ValueError("backbone: a network of timm has letters, digits and points, as timm:convnext_tiny")
    short = name.removeprefix(PREFIX)
    build = partial(TimmFeatures, name=short)
    return Backbone(
        name,
        "a timm model",
        build,
        {},
        "stage4",
        strict=False,
        fetch=partial(_fetch, short),
        whole=partial(build, "all", True),
    )
