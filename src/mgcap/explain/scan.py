"""One pass over many images for what explanations of a whole set need: angles, votes, probabilities and descriptors."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from mgcap.backbones.pretrained import state_hash
from mgcap.data.stream import Item, OnError, image_batches
from mgcap.inference.forward import answer, walk
from mgcap.inference.pipeline import images_together, stream_features
from mgcap.model import MGCAP
from mgcap.persistence.cache import content_key
from mgcap.persistence.files import atomic_path
from mgcap.runtime import Progress, silent
from mgcap.typing import Array

if TYPE_CHECKING:
    from mgcap.classifier import SceneClassifier


#: Images that are kept together on disk.
CHUNK = 32


@dataclass(frozen=True)
class Scan:
    """What was found of n images that could be read.

    Attributes:
        index: ``[n]``, which of the images.
        angles: ``[n, S]``, canonical angles in degrees.
        votes: ``[n, S, R]``, shares.
        probabilities: ``[n, K]``.
        descriptors: ``[n, d]`` in float16.
    """

    index: Array
    angles: Array
    votes: Array
    probabilities: Array
    descriptors: Array

    def only(self, indices: Iterable[int]) -> Scan:
        """What was found of some of the images."""
        kept = np.isin(self.index, list(indices))
        return Scan(**{field.name: getattr(self, field.name)[kept] for field in fields(self)})


def model_fingerprint(classifier: SceneClassifier) -> str:
    """A fingerprint of everything that the answers of a model depend on."""
    model: MGCAP = classifier.model_
    text = f"{state_hash(model.state_dict())} {model.config.model_dump_json()} {classifier.engine_.fingerprint}"
    return hashlib.sha256(text.encode()).hexdigest()


@torch.no_grad()
def scan_images(
    classifier: SceneClassifier,
    items: Sequence[Item],
    on_error: OnError,
    folder: Path | None = None,
    progress: Progress = silent,
) -> Scan:
    """Look at images once.

    Args:
        classifier: Fitted.
        items: Images.
        on_error: Called for each image that cannot be read.
        folder: Keeps what is done, so that a killed pass can be resumed; None keeps nothing.
        progress: Where to report.
    """
    fingerprint = model_fingerprint(classifier) if folder else ""
    parts: list[dict[str, Array]] = []
    with progress("Looking at the images", len(items)) as step:
        for start in range(0, len(items), CHUNK):
            some = items[start : start + CHUNK]
            path = folder / f"{_chunk_name(fingerprint, some)}.safetensors" if folder else None
            found = _read(path)
            if found is None:
                found = _look(classifier, some, on_error, start)
                if path is not None:
                    with atomic_path(path) as temporary:
                        save_file(found, temporary)
            parts.append({**found, "index": found["index"] + start})
            step(len(some))
    names = [f.name for f in fields(Scan)]
    return Scan(**{name: np.concatenate([part[name] for part in parts]) for name in names})


def _chunk_name(fingerprint: str, items: Sequence[Item]) -> str:
    keys = [(content_key(item) or b"").hex() for item in items]
    return hashlib.sha256(json.dumps([fingerprint, *keys]).encode()).hexdigest()[:32]


def _read(path: Path | None) -> dict[str, Array] | None:
    try:
        return dict(load_file(path)) if path is not None and path.exists() else None
    except (SafetensorError, OSError):
        return None


def _look(classifier: SceneClassifier, items: Sequence[Item], on_error: OnError, offset: int) -> dict[str, Array]:
    model: MGCAP = classifier.model_
    config = model.config
    rows: dict[str, list[Array]] = {f.name: [] for f in fields(Scan)}
    batches = image_batches(
        items, images_together(config.rotations, model.mean.device.type), lambda i, e: on_error(offset + i, e)
    )
    for index, seen in walk(model, stream_features(model, batches, classifier.engine_), winners=True):
        found = answer(model, seen)
        assert found.votes is not None
        votes = found.votes[0].float()
        rows["index"].append(np.array(index))
        rows["angles"].append(np.array([config.angles[int(r)] for r in votes.argmax(-1)], np.float32))
        rows["votes"].append((votes / votes.sum(-1, keepdim=True)).cpu().numpy())
        rows["probabilities"].append(found.probabilities[0].cpu().numpy())
        rows["descriptors"].append(found.descriptors[0].half().cpu().numpy())
    if not rows["index"]:
        shapes = {
            "index": (0,),
            "angles": (0, len(config.granularities)),
            "votes": (0, len(config.granularities), config.rotations),
            "probabilities": (0, config.num_classes),
            "descriptors": (0, model.head.in_features),
        }
        return {name: np.zeros(shape, np.int64 if name == "index" else np.float32) for name, shape in shapes.items()}
    return {name: np.stack(values) for name, values in rows.items()}
