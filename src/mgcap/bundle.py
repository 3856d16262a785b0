"""One safe file per trained model: safetensors with a JSON header, never pickle.

The header holds the configuration, classes, preprocessing, provenance and metrics, and a digest over itself and the
tensors, so that a damaged or altered file is noticed. A stock backbone is stored by name and hash, a changed one by
its weights.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from mgcap.assets import atomic_path
from mgcap.config import MGCAPConfig
from mgcap.errors import BundleError
from mgcap.weights import state_hash

FORMAT_VERSION = 1
_KEY = "mgcap"


@dataclass(frozen=True)
class Bundle:
    """What a model file holds.

    Attributes:
        config: How to build the model.
        classes: Class names in the order of the logits.
        backbone: Its name and hash, and whether it is stock.
        tensors: Head, reduction and, if changed, backbone.
        provenance: Data, split, versions, weights' source.
        metrics: What was measured, and on what.
        imagery: What its images were like, see :class:`mgcap.data.imagery.Imagery`.
    """

    config: MGCAPConfig
    classes: tuple[str, ...]
    backbone: dict[str, Any]
    tensors: dict[str, Tensor]
    provenance: dict[str, Any] = field(default_factory=dict)
    metrics: dict[str, Any] = field(default_factory=dict)
    imagery: dict[str, Any] = field(default_factory=dict)


def _digest(header: dict[str, Any], tensors: dict[str, Tensor]) -> str:
    text = json.dumps(header, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256((text + state_hash(tensors)).encode()).hexdigest()


def write_bundle(path: str | Path, bundle: Bundle, preprocessing: dict[str, Any]) -> None:
    """Write a model file atomically.

    Raises:
        BundleError: If the file cannot be written; what was there before stays.
    """
    path = Path(path).expanduser()
    header = {
        "format_version": FORMAT_VERSION,
        "config": bundle.config.model_dump(mode="json"),
        "classes": list(bundle.classes),
        "backbone": bundle.backbone,
        "preprocessing": preprocessing,
        "provenance": bundle.provenance,
        "metrics": bundle.metrics,
        "imagery": bundle.imagery,
    }
    header = json.loads(json.dumps(header))
    header["digest"] = _digest(header, bundle.tensors)
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in bundle.tensors.items()}
    try:
        with atomic_path(path) as temporary:
            save_file(tensors, temporary, {_KEY: json.dumps(header)})
    except (OSError, SafetensorError) as error:
        raise BundleError(f"the model cannot be written to {path}: {error}") from error


def read_bundle(path: str | Path) -> Bundle:
    """Read and check a model file.

    Raises:
        BundleError: With one sentence, if it is missing, truncated, altered, too new or not ours.
    """
    path = Path(path).expanduser()
    if not path.is_file():
        raise BundleError(f"there is no model file {path}")
    try:
        with safe_open(path, "pt") as file:
            metadata = file.metadata() or {}
            if _KEY not in metadata:
                raise BundleError(f"{path} is a safetensors file, but not an mgcap model")
            header = json.loads(metadata[_KEY])
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise BundleError(f"{path} is not an mgcap model, or it is truncated ({error})") from error
    except ValueError as error:
        raise BundleError(f"{path} has a damaged header") from error
    if not isinstance(header, dict) or not isinstance(header.get("format_version"), int):
        raise BundleError(f"{path} has a damaged header")
    if header["format_version"] > FORMAT_VERSION:
        raise BundleError(
            f"{path} has format {header['format_version']}, made by a newer mgcap; this one reads up to "
            f"{FORMAT_VERSION}: pip install --upgrade mgcap"
        )
    if header.pop("digest", None) != _digest(header, tensors):
        raise BundleError(f"{path} was altered or damaged after it was written: its digest does not match")
    try:
        bundle = Bundle(
            config=MGCAPConfig(**header["config"]),
            classes=tuple(header["classes"]),
            backbone=dict(header["backbone"]),
            tensors=tensors,
            provenance=dict(header["provenance"]),
            metrics=dict(header["metrics"]),
            imagery=dict(header.get("imagery", {})),
        )
    except (KeyError, TypeError, ValidationError, ValueError) as error:
        raise BundleError(f"{path} has a header that does not describe a model: {error}") from error
    if len(bundle.classes) != bundle.config.num_classes:
        raise BundleError(f"{path} names {len(bundle.classes)} classes for {bundle.config.num_classes} outputs")
    return bundle
