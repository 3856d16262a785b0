"""A classifier to and from a model file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from mgcap.backbones.architecture import parse_architecture, portable_name
from mgcap.backbones.pretrained import is_stock, load_weights, state_hash
from mgcap.config import MGCAPConfig
from mgcap.errors import BundleError
from mgcap.inference.examples import EXAMPLE_TENSORS, Examples
from mgcap.inference.projection import projection_for
from mgcap.inference.sample import TENSORS, TrainingSample, reduce_rows, reduced_by
from mgcap.model import MGCAP
from mgcap.persistence.bundle import Bundle
from mgcap.persistence.files import sha256_of
from mgcap.persistence.header import LABEL_TYPES
from mgcap.persistence.layout import EXAMPLES, INT8, SAMPLE
from mgcap.runtime import Progress
from mgcap.typing import Array

if TYPE_CHECKING:
    from mgcap.classifier import SceneClassifier


class SavedMixin:
    """What an estimator knows of its file.

    Attributes:
        file_: Where the model was saved to or loaded from; None if it is in no file.
    """

    file_: Path | None
    _fingerprint: str | None

    @property
    def fingerprint_(self) -> str | None:
        """SHA-256 of that file, as it was saved or loaded; None if there is none."""
        return getattr(self, "_fingerprint", None)

    def _set_file(self, path: Path | None) -> None:
        self.file_ = None if path is None else path.absolute()
        self._fingerprint = None if path is None else sha256_of(path)


def to_bundle(classifier: SceneClassifier) -> tuple[Bundle, dict[str, Any]]:
    """What goes into the file of a fitted classifier, and its preprocessing in words."""
    model = classifier.model_
    tensors = {f"head.{name}": tensor for name, tensor in model.head.state_dict().items()}
    tensors |= {f"reduction.{name}": tensor for name, tensor in model.reduction.state_dict().items()}
    backbone = dict(classifier.backbone_)
    if not backbone["stock"]:
        # granularities that share weights in all but name are stored once
        states = [b.state_dict() for b in model.backbones]
        if all(state_hash(state) == state_hash(states[0]) for state in states[1:]):
            states = states[:1]
        tensors |= {f"backbones.{i}.{k}": v for i, state in enumerate(states) for k, v in state.items()}
    quantisation = getattr(classifier.engine_, "quantisation", {})
    tensors |= {f"{INT8}{key}": constants for key, constants in quantisation.items()}
    provenance = dict(classifier.provenance_)
    if classifier.sample_ is not None:
        tensors |= {f"{SAMPLE}{name}": tensor for name, tensor in classifier.sample_.tensors().items()}
        provenance["reduced_by"] = reduced_by(model)
    if classifier.examples_ is not None:
        tensors |= {f"{EXAMPLES}{name}": tensor for name, tensor in classifier.examples_.tensors().items()}
        provenance["examples_by"] = projection_for(model).fingerprint
    c = portable(model.config)
    backbone["name"] = c.backbone
    mean, std = (value.flatten().tolist() for value in (model.mean, model.std))
    preprocessing = {"colour": "RGB in [0, 1]", "mean": mean, "std": std, "size": c.size}
    saved = Bundle(
        config=c,
        classes=tuple(_name_of(label) for label in classifier.classes_),
        backbone=backbone,
        tensors=tensors,
        provenance=provenance,
        metrics=classifier.metrics_,
        imagery=classifier.imagery_.model_dump(),
        label_kind=_label_kind(classifier.classes_),
        label_dtype=name if (name := classifier.classes_.dtype.name) in LABEL_TYPES else None,
    )
    return saved, preprocessing


def portable(config: MGCAPConfig) -> MGCAPConfig:
    """A configuration without what it says of somebody's folders: a network from a folder keeps the folder's name."""
    name = portable_name(config.backbone)
    if name == config.backbone or config.architecture is None:
        return config
    renamed = parse_architecture(config.architecture).model_copy(update={"name": name})
    return config.replace(backbone=name, layer=config.layer, architecture=renamed.text())


def _name_of(label: Any) -> str:
    """A label as text; a number that can be made of it again is the same, whatever its precision."""
    return repr(float(label)) if isinstance(label, np.floating) else str(label)


def _label_kind(classes: Array) -> str:
    return {"i": "int", "u": "int", "f": "float", "b": "bool"}.get(classes.dtype.kind, "str")


def restore_model(found: Bundle, path: str | Path, progress: Progress) -> tuple[MGCAP, dict[str, torch.Tensor]]:
    """The model of a file, and its int8 constants; a stock backbone comes from the cache or is fetched.

    Raises:
        BundleError: If the tensors do not fit the configuration, or the backbone is another.
    """
    config = found.config
    stock = bool(found.backbone.get("stock"))
    if stock and not is_stock(config.backbone, str(found.backbone.get("sha256"))):
        # nothing is looked for on behalf of a file but weights that are pinned here
        raise BundleError(f"{path} was trained on other {config.backbone} weights than the ones at hand")
    model = MGCAP(config).eval().requires_grad_(False)
    tensors = {name: t for name, t in found.tensors.items() if not name.startswith((INT8, SAMPLE, EXAMPLES))}
    int8 = {name.removeprefix(INT8): t for name, t in found.tensors.items() if name.startswith(INT8)}
    if stock:
        weights = load_weights(config.backbone, progress.say)
        model.load_backbone(weights.state, weights.source)
    elif not any(name.startswith("backbones.1.") for name in tensors):
        first = {name: t for name, t in tensors.items() if name.startswith("backbones.0.")}
        for i in range(1, len(model.backbones)):
            tensors |= {name.replace(".0.", f".{i}.", 1): t for name, t in first.items()}
    try:
        missing, unexpected = model.load_state_dict(tensors, strict=False)
    except RuntimeError as error:
        raise BundleError(f"the tensors of {path} do not fit its configuration") from error
    if unexpected or [name for name in missing if not (stock and name.startswith("backbones."))]:
        raise BundleError(f"the tensors of {path} do not fit its configuration")
    return model, int8


def restore_sample(found: Bundle, path: str | Path, model: MGCAP) -> TrainingSample | None:
    """The sample of a file; None if it has none, or one of vectors that this version makes otherwise.

    Raises:
        BundleError: If it is none of this model's.
    """
    tensors = {name.removeprefix(SAMPLE): t for name, t in found.tensors.items() if name.startswith(SAMPLE)}
    if not tensors or found.provenance.get("reduced_by") != reduced_by(model):
        return None
    sample = TrainingSample(*(tensors[name] for name in TENSORS))
    low, high = (int(end) for end in torch.aminmax(sample.targets))
    count, length = sample.vectors.shape
    fits = length == reduce_rows(model, torch.zeros(1, model.head.in_features)).shape[1]
    fits &= low >= 0 and high < len(found.classes) and 0 <= int(sample.pictured) <= count
    if not fits or bool((sample.distances.diff() < 0).any()):
        raise BundleError(f"the sample of training descriptors in {path} does not fit the model")
    return sample


def restore_examples(found: Bundle, path: str | Path, model: MGCAP) -> Examples | None:
    """The examples of a file; None if it has none, or such as this version makes otherwise.

    Raises:
        BundleError: If they are none of this model's.
    """
    tensors = {name.removeprefix(EXAMPLES): t for name, t in found.tensors.items() if name.startswith(EXAMPLES)}
    projection = projection_for(model)
    if not tensors or found.provenance.get("examples_by") != projection.fingerprint:
        return None
    examples = Examples(*(tensors[name] for name in EXAMPLE_TENSORS))
    low, high = (int(end) for end in torch.aminmax(examples.targets))
    length = projection.length(model.head.in_features)
    if low < 0 or high >= len(found.classes) or examples.vectors.shape[1] != length:
        raise BundleError(f"the examples in {path} do not fit the model")
    return examples
