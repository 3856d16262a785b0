"""What was taught as a model file: the base model with another head, which says what it was taught."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from mgcap.errors import DataError
from mgcap.inference.examples import Examples
from mgcap.inference.fingerprints import descriptor_fingerprint
from mgcap.labelling.kinds import imagery_of
from mgcap.labelling.teaching import taught_classifier
from mgcap.persistence.files import atomic_path

if TYPE_CHECKING:
    from mgcap.classifier import SceneClassifier
    from mgcap.labelling.learner import Learned
    from mgcap.labelling.live import Fitted, Live, Measured

#: What is said of the accuracies in the card.
_WORDS = {
    "accuracy_blocks": "where whole blocks of land were held out",
    "accuracy_random": "where single cells were held out, which flatters as neighbours are alike",
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
    names = live.names()
    classes = [names[number] for number in learned.classes]
    examples = _examples(live, learned)
    imagery = imagery_of(live.project.indexes[0], base.imagery_)
    block = live.learner.block
    own = taught_classifier(base, classes, learned, examples, block=block, card=_card(live, fitted), imagery=imagery)
    if fitted.measured is not None:  # what the page says
        own.metrics_ = _measured(own.metrics_, fitted.measured, len(learned.cells))
    if live.project.about.prior:
        own.examples_ = None  # they are not all that it knows
    return own


def _examples(live: Live, learned: Learned) -> Examples:
    """The labelled cells, so that classes can be added to the model later."""
    return Examples(
        live.pool.vectors[torch.from_numpy(learned.cells)],
        torch.from_numpy(learned.targets).to(torch.int32),
        torch.from_numpy(live.pool.places[learned.cells]).double(),
    )


def _measured(metrics: dict[str, Any], measured: Measured, labels: int) -> dict[str, Any]:
    """Accuracies with that of the labels that were not suggested, if these are enough, as these are like the rest."""
    estimate = measured.estimate
    blocks = {"value": estimate.value, "low": estimate.low, "high": estimate.high}
    found = {**metrics, "accuracy_blocks": {**metrics.get("accuracy_blocks", {}), **blocks}}
    if measured.labels < labels:  # single cells were held out of all labels
        found.pop("accuracy_random", None)
    return found


def _card(live: Live, fitted: Fitted) -> dict[str, Any]:
    names, about, learned, measured = live.names(), live.project.about, fitted.learned, fitted.measured
    assert learned is not None
    counts = np.bincount(learned.targets, minlength=len(learned.classes)).tolist()
    return {
        "base": Path(about.model).stem,
        "rasters": [own.name for own in about.rasters],
        "labels": {names[number]: count for number, count in zip(learned.classes, counts, strict=True)},
        "people": len({own.who for labels in list(live.said.values()) for own in labels}),
        "measured": None if measured is None else {"labels": measured.labels, "suggested": measured.suggested},
        "prior": about.prior,
        "block": live.learner.block,
    }


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
    if measured := said.get("measured"):
        if measured["suggested"]:
            lines.append(
                "Suggested cells are among those that were held out. These are hard: it is better than this says."
            )
        elif measured["labels"] < count:
            lines.append(f"This is measured by the {measured['labels']} labelled cells that were not suggested.")
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
    with atomic_path(path.with_suffix(".md")) as temporary:
        temporary.write_text(card(own, own.classes_.tolist()), encoding="utf-8")
    return own
