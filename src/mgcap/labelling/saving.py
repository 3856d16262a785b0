"""What was taught as a model file: the base model with another head, which says what it was taught."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from mgcap.errors import DataError
from mgcap.evaluation.spatial import block_folds, block_numbers
from mgcap.inference.examples import Examples
from mgcap.inference.fingerprints import descriptor_fingerprint
from mgcap.inference.projection import projection_for
from mgcap.inference.sample import TrainingSample, reduce_rows, take_sample
from mgcap.model import MGCAP
from mgcap.persistence.files import atomic_path
from mgcap.training.provenance import CONFIDENCE, made, percentiles

if TYPE_CHECKING:
    from mgcap.classifier import SceneClassifier
    from mgcap.labelling.learner import Learned
    from mgcap.labelling.live import Live

#: What the base model says of itself that is still so.
_KEPT = ("parameters", "weights", "engine", "descriptor")
#: What is said of the accuracies in the card.
_WORDS = {
    "accuracy_spatial_blocks": "where whole blocks of land were held out",
    "accuracy_random_split": "where single cells were held out, which flatters as neighbours are alike",
}


def taught(live: Live) -> SceneClassifier:
    """The base model with the head that the labels of a project make.

    Raises:
        DataError: If there are too few labels yet.
    """
    fitted = live.wait_fitted()
    learned = fitted.learned
    if learned is None:
        raise DataError("there is nothing to save yet: label cells of two classes")
    base = live.classifier()
    if live.project.indexes[0].about.descriptor != descriptor_fingerprint(base.model_):
        raise DataError(f"{live.project.indexes[0].name} was made with other descriptors than the project's model")
    own = copy.copy(base)
    own.model_ = _with_head(base.model_, learned)
    names = live.names()
    own.classes_ = np.array([names[number] for number in learned.classes])
    own.backbone_ = dict(base.backbone_)
    own.sample_, own.examples_ = _sample(live, learned, own.model_), _examples(live, learned)
    own.regularisation_ = own.cv_accuracy_ = None
    own.provenance_, own.metrics_ = _provenance(live, learned, base), _metrics(learned)
    return own


def _with_head(base: MGCAP, learned: Learned) -> MGCAP:
    """A copy of a model whose head knows the classes of a project."""
    weight, bias = projection_for(base).unfold(learned.weight.float(), learned.bias.float())
    before = base.head
    base.head = nn.Identity()  # type: ignore[assignment]
    try:
        model = copy.deepcopy(base, {id(base.backbones): base.backbones})  # which nobody changes
    finally:
        base.head = before
    model.config = base.config.replace(num_classes=len(bias))
    model.head = type(before)(before.in_features, len(bias)).to(weight.device).requires_grad_(False)
    with torch.no_grad():
        model.head.weight.copy_(weight)
        model.head.bias.copy_(bias)
    return model.eval()


def _sample(live: Live, learned: Learned, model: MGCAP) -> TrainingSample | None:
    """Of the labelled cells; distances are those of held-out blocks of land."""
    if not len(learned.cells):
        return None
    chosen = torch.from_numpy(learned.cells)
    reduced = reduce_rows(model, live.pool.vectors[chosen].float())
    blocks = block_numbers(live.pool.places[learned.cells], live.learner.block)
    folds = block_folds(blocks, learned.targets)
    if folds is None:
        folds = np.arange(len(chosen)) % 5
    count = len(chosen)
    return take_sample(reduced, learned.targets, folds, np.ones(count, bool), count)[0]


def _examples(live: Live, learned: Learned) -> Examples:
    """The labelled cells, so that classes can be added to the model later."""
    return Examples(
        live.pool.vectors[torch.from_numpy(learned.cells)],
        torch.from_numpy(learned.targets).to(torch.int32),
        torch.from_numpy(live.pool.places[learned.cells]).double(),
    )


def _provenance(live: Live, learned: Learned, base: SceneClassifier) -> dict[str, Any]:
    names = live.names()
    about = live.project.about
    kept: dict[str, Any] = {key: value for key, value in base.provenance_.items() if key in _KEPT}
    counts = np.bincount(learned.targets, minlength=len(learned.classes)).tolist()
    people = sorted({own.who for labels in live.said.values() for own in labels})
    return {
        **kept,
        "taught": {
            "base": Path(about.model).stem,
            "rasters": [own.name for own in about.rasters],
            "labels": {names[number]: count for number, count in zip(learned.classes, counts, strict=True)},
            "people": len(people),
            "prior": about.prior,
        },
        **made(),
    }


def _metrics(learned: Learned) -> dict[str, Any]:
    found: dict[str, Any] = {}
    known = learned.held_out[np.isfinite(learned.held_out).all(1)]
    if len(known) >= 2:
        found[CONFIDENCE] = percentiles(torch.from_numpy(known))
    for name, estimate in (("accuracy_spatial_blocks", learned.estimate), ("accuracy_random_split", learned.random)):
        if estimate is not None:
            values = estimate.value, estimate.low, estimate.high
            found[name] = dict(zip(("value", "low", "high"), (round(float(v), 4) for v in values), strict=True))
    return found


def card(own: SceneClassifier, names: Sequence[str]) -> str:
    """What the model was taught, as Markdown."""
    said, metrics = own.provenance_["taught"], own.metrics_
    count, people = sum(said["labels"].values()), said["people"]
    rasters = ", ".join(map(_plain, said["rasters"]))
    rows = "\n".join(f"| {_plain(name)} | {count} |" for name, count in said["labels"].items())
    lines = [
        f"# A model of {len(names)} classes",
        f"Made on {own.provenance_['created']} by `mgcap label`: the descriptors of {said['base']}, and a head "
        f"that was taught by {count} labelled cells of {rasters}, given by {people} "
        f"{'person' if people == 1 else 'people'}."
        + (" Labelling began with the head of that model." if said["prior"] else ""),
        f"| class | labelled cells |\n|---|---|\n{rows}",
    ]
    for key, what in _WORDS.items():
        if found := metrics.get(key):
            lines.append(
                f"Accuracy {what}: {100 * found['value']:.1f} % "
                f"(95 % interval {100 * found['low']:.1f} to {100 * found['high']:.1f} %)."
            )
    lines.append(
        "It knows this land and these images. Elsewhere, at another time of the year or from another sensor, look at "
        "what it calls unknown, and check it against a sample."
    )
    return "\n\n".join(lines) + "\n"


def _plain(text: str) -> str:
    return "".join("\\" + letter if letter in "\\`*_{}[]<>|#" else letter for letter in text)


def save_model(live: Live, path: Path) -> SceneClassifier:
    """Write the model of a project, and its card beside it."""
    own = taught(live)
    own.save(path)
    own.file_ = path
    with atomic_path(path.with_suffix(".md")) as temporary:
        temporary.write_text(card(own, own.classes_.tolist()), encoding="utf-8")
    return own
