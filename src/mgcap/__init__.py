"""Remote sensing scene classification by multi-granularity canonical appearance pooling (MG-CAP)."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from mgcap.errors import BundleError, DataError, ImageError, MgcapError, WeightsError

if TYPE_CHECKING:
    from mgcap import config, data, embedding, head, pooling, reduction, spectral, views
    from mgcap._version import __version__
    from mgcap.classifier import SceneClassifier, load
    from mgcap.config import MGCAPConfig
    from mgcap.descriptor import SceneDescriptor
    from mgcap.model import MGCAP
    from mgcap.runtime import Runtime
    from mgcap.training.recipe import Finetune

#: Loaded on first use, so that the command line answers at once.
_LAZY = {
    "MGCAP": "model",
    "Finetune": "training.recipe",
    "MGCAPConfig": "config",
    "Runtime": "runtime",
    "SceneClassifier": "classifier",
    "SceneDescriptor": "descriptor",
    "__version__": "_version",
    "load": "classifier",
}
_MODULES = ("config", "data", "embedding", "head", "pooling", "reduction", "spectral", "views")

__all__ = [
    "MGCAP",
    "BundleError",
    "DataError",
    "Finetune",
    "ImageError",
    "MGCAPConfig",
    "MgcapError",
    "Runtime",
    "SceneClassifier",
    "SceneDescriptor",
    "WeightsError",
    "__version__",
    "config",
    "data",
    "embedding",
    "head",
    "load",
    "pooling",
    "reduction",
    "spectral",
    "views",
]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(importlib.import_module(f"mgcap.{_LAZY[name]}"), name)
    if name in _MODULES:
        return importlib.import_module(f"mgcap.{name}")
    raise AttributeError(f"module 'mgcap' has no attribute '{name}'")
