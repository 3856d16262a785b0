"""Networks of the timm library, by name."""

from __future__ import annotations

import re
from functools import partial

from torch import Tensor, nn

from mgcap.backbones.record import Backbone

PREFIX = "timm:"


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


def timm_record(name: str) -> Backbone:
    """The record of ``timm:NAME``.

    Raises:
        ValueError: If the name could be more than that of a network: a model file could ask timm to fetch something.
    """
    if not re.fullmatch(r"timm:[\w.-]+", name, re.ASCII):
        raise ValueError("backbone: a network of timm has letters, digits and points, as timm:convnext_tiny")
    build = partial(TimmFeatures, name=name.removeprefix(PREFIX))
    return Backbone(name, "a timm model", build, {}, "stage4", strict=False)
