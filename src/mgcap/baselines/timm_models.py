"""Any model of timm, where that is installed: its pooled features and a linear SVM, by the name ``timm:NAME``."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from mgcap.baselines.method import About, Maker, Tools
from mgcap.baselines.networks import CPU
from mgcap.baselines.svm import DescriptorSvm
from mgcap.errors import MgcapError
from mgcap.persistence.cache import Recipe

PREFIX = "timm:"


@cache
def _opened(name: str) -> tuple[Any, dict[str, Any]]:
    try:
        import timm
    except Exception as error:  # a broken torchvision fails with RuntimeError, not ImportError
        raise MgcapError(
            f"'{PREFIX}{name}' needs timm and a working torchvision (pip install timm): {error}"
        ) from error
    try:
        model = timm.create_model(name, pretrained=True, num_classes=0).eval()
    except Exception as error:
        raise MgcapError(f"timm cannot give '{name}' with its weights: {error}") from error
    return model, timm.data.resolve_model_data_config(model)


class PooledFeatures:
    """What a model of timm gives before its classifier.

    Args:
        name: Of the model.
        device: Where it computes.
    """

    def __init__(self, name: str, device: torch.device = CPU) -> None:
        self.name, self.device = name, device
        self.recipe: Recipe = {"kind": "timm", "name": name, "torch": torch.__version__}

    @torch.inference_mode()
    def rows(self, images: Tensor) -> Tensor:
        """See :class:`mgcap.baselines.method.Descriptor`."""
        model, config = _opened(self.name)
        model.to(self.device)
        mean, std = (torch.tensor(config[key], device=self.device).view(3, 1, 1) for key in ("mean", "std"))
        seen = F.interpolate(images.to(self.device), config["input_size"][-2:], mode="bilinear", antialias=True)
        parts = [model((part - mean) / std).flatten(1) for part in torch.split(seen, 8)]
        return torch.cat(parts).float().cpu()

    def numbers(self) -> int:
        """Parameters of the model."""
        return sum(p.numel() for p in _opened(self.name)[0].parameters())


def timm_method(name: str) -> tuple[About, Maker]:
    """The method of the name ``timm:NAME``."""
    model = name.removeprefix(PREFIX)

    def make(tools: Tools) -> DescriptorSvm:
        descriptor = PooledFeatures(model, tools.torch_device())
        return DescriptorSvm(tools, descriptor, frozen=descriptor.numbers())

    what = "pooled features of the frozen model, unit length, linear SVM"
    return About(name, f"{model} of timm + SVM, frozen", "deep, frozen", "timm", what, needs=("timm",)), make
