"""One safe file per trained model: safetensors with a JSON header, never pickle.

The header holds the configuration, classes, preprocessing, provenance and metrics, and a fingerprint of itself and
the tensors, so that a damaged or altered file is noticed. A stock backbone is stored by name and hash, a changed one by
its weights.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from mgcap.backbones import UnknownBackbone
from mgcap.backbones.pretrained import state_hash
from mgcap.config import MGCAPConfig
from mgcap.errors import BundleError, missing
from mgcap.persistence.files import atomic_path
from mgcap.persistence.header import Header, checked, finite, one_line, parse
from mgcap.persistence.layout import fits, usable
from mgcap.persistence.upgrades import upgraded
from mgcap.typing import Array

FORMAT_VERSION = 4
_KEY = "mgcap"
_LABELS: dict[str, Callable[[str], Any]] = {"str": str, "int": int, "float": float, "bool": lambda name: name == "True"}
#: More tensors than the networks of all granularities have.
MAX_TENSORS = 100_000


@dataclass(frozen=True)
class Bundle:
    """What a model file holds.

    Attributes:
        config: How to build the model.
        classes: Class names in the order of the logits.
        label_kind: What the labels were before they became names: ``str``, ``int``, ``float`` or ``bool``.
        label_dtype: NumPy's name of their type, if they are numbers and it is known.
        backbone: Its name and hash, and whether it is stock.
        tensors: Head, reduction, a sample of what it was trained on, its examples and, if changed, backbone.
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
    label_kind: str = "str"
    label_dtype: str | None = None

    def labels(self) -> Array:
        """The classes as they were given in training."""
        return np.array([_LABELS[self.label_kind](name) for name in self.classes], self.label_dtype)


def _fingerprint(header: dict[str, Any], tensors: dict[str, Tensor]) -> str:
    text = json.dumps(header, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256((text + state_hash(tensors)).encode()).hexdigest()


def write_bundle(path: str | Path, bundle: Bundle, preprocessing: dict[str, Any]) -> None:
    """Write a model file atomically.

    Raises:
        BundleError: If the file cannot be written, or not be read again; what was there before stays.
    """
    path = Path(path).expanduser()
    header = {
        "format_version": FORMAT_VERSION,
        "config": bundle.config.model_dump(mode="json"),
        "classes": list(bundle.classes),
        "label_kind": bundle.label_kind,
        "label_dtype": bundle.label_dtype,
        "backbone": bundle.backbone,
        "preprocessing": preprocessing,
        "provenance": bundle.provenance,
        "metrics": bundle.metrics,
        "imagery": bundle.imagery,
    }
    try:
        header = finite(parse(json.dumps(header)))
        checked(header)
    except ValueError as error:
        raise BundleError(f"the model cannot be written to {path}: {one_line(error)}") from error
    header["digest"] = _fingerprint(header, bundle.tensors)
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in bundle.tensors.items()}
    try:
        with atomic_path(path) as temporary:
            save_file(tensors, temporary, {_KEY: json.dumps(header)})
    except (OSError, SafetensorError) as error:
        raise BundleError(f"the model cannot be written to {path}: {error}") from error


def read_bundle(path: str | Path) -> Bundle:
    """Read and check a model file.

    A fingerprint is no signature: whoever alters a file can alter that, too. So nothing in it is believed, and no
    tensor is read before its name, type and shape are known to be those of the configuration.

    Raises:
        BundleError: With one sentence, if it is missing, truncated, altered, too new or not ours.
    """
    path = Path(path).expanduser()
    if not path.is_file():
        raise BundleError(missing("model file", path))
    try:
        with safe_open(path, "pt") as file:
            header, found, config = _read_header(path, (file.metadata() or {}).get(_KEY))
            _check_layout(path, config, found.backbone.stock, file)
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, RuntimeError) as error:
        raise BundleError(f"{path} is not an mgcap model, or it is truncated ({one_line(error)})") from error
    if header.pop("digest", None) != _fingerprint(header, tensors):
        raise BundleError(f"{path} was altered or damaged after it was written: its fingerprint does not match")
    if not usable(tensors):
        raise BundleError(f"{path} has weights that are not finite, or too large to use")
    return Bundle(
        config=config,
        classes=tuple(found.classes),
        backbone=found.backbone.model_dump(),
        tensors=tensors,
        provenance=found.provenance.model_dump(exclude_unset=True),
        metrics=found.metrics.model_dump(exclude_unset=True),
        imagery=found.imagery.model_dump(exclude_unset=True),
        label_kind=found.label_kind,
        label_dtype=found.label_dtype,
    )


def _read_header(path: Path, text: str | None) -> tuple[dict[str, Any], Header, MGCAPConfig]:
    """The header as it is in the file, and what it says."""
    if text is None:
        raise BundleError(f"{path} is a safetensors file, but not an mgcap model")
    try:
        header = parse(text)
    except ValueError as error:
        raise BundleError(f"{path} has a damaged header") from error
    version = header.get("format_version")
    if type(version) is not int or version < 1:
        raise BundleError(f"{path} has a damaged header")
    if version > FORMAT_VERSION:
        raise BundleError(
            f"{path} has format {version}, made by a newer mgcap; this one reads up to "
            f"{FORMAT_VERSION}: pip install --upgrade mgcap"
        )
    try:
        return header, *checked(upgraded(header))
    except UnknownBackbone as error:
        raise BundleError(
            f"{path} needs a backbone that is not installed; install the package that brings it, or register "
            f"your file with `mgcap.backbones.add_file`: {one_line(error)}"
        ) from error
    except ValueError as error:
        raise BundleError(f"{path} has a header that does not describe a model: {one_line(error)}") from error


def _check_layout(path: Path, config: MGCAPConfig, stock: bool, file: Any) -> None:
    names = file.keys()
    if len(names) > MAX_TENSORS:
        raise BundleError(f"{path} has more tensors than any model")
    slices = {name: file.get_slice(name) for name in names}
    found = {name: (part.get_dtype(), tuple(part.get_shape())) for name, part in slices.items()}
    try:
        right = fits(config, stock, found)
    except ValueError as error:
        raise BundleError(f"{path} needs a model that cannot be built: {one_line(error)}") from error
    if not right:
        raise BundleError(
            f"{path} was altered or damaged after it was written: its tensors do not fit its configuration"
        )
