"""What came out of one or several runs: means, spreads, confusion and mistakes."""

from __future__ import annotations

import platform
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mgcap._version import __version__
from mgcap.classifier import SceneClassifier
from mgcap.data.folders import SceneFolder
from mgcap.data.stream import OnError
from mgcap.errors import DataError, unknown_class
from mgcap.evaluation.metrics import score

Run = dict[str, Any]


def summarise(runs: Sequence[Run], classes: Sequence[str]) -> dict[str, Any]:
    """Means and standard deviations over runs, per-class accuracy and the sum of the confusion matrices."""
    columns = ("accuracy", "macro_f1", "kappa", "ece", "ece_calibrated", "loss", "cross_validated_accuracy")
    means, spreads = {}, {}
    for column in columns:
        values = [run[column] for run in runs if run.get(column) is not None]
        means[column] = float(np.mean(values)) if values else None
        spreads[column] = float(np.std(values, ddof=1)) if len(values) > 1 else None
    per_class = np.array([run["per_class"] for run in runs], dtype=float)
    valid = ~np.isnan(per_class)
    shares = np.divide(np.where(valid, per_class, 0).sum(0), valid.sum(0), where=valid.any(0), out=per_class[0] * 0)
    return {
        "mean": means["accuracy"],
        "std": spreads["accuracy"],
        "runs": [run["accuracy"] for run in runs],
        "means": means,
        "stds": spreads,
        "classes": list(classes),
        "per_class_accuracy": dict(zip(classes, shares.tolist(), strict=True)),
        "confusion": np.sum([run["confusion"] for run in runs], axis=0).tolist(),
        "train_images": runs[0]["train_images"],
        "test_images": runs[0]["test_images"],
        "engine": runs[0]["engine"],
        "weights": runs[0]["weights"],
        "versions": {"mgcap": __version__, "torch": torch.__version__, "python": platform.python_version()},
    }


def mistakes(
    folder: SceneFolder, members: Sequence[int], targets: Tensor, probabilities: Tensor, classes: Sequence[str]
) -> list[dict[str, Any]]:
    """The misclassified images of a folder, most confident first.

    Args:
        folder: Has the images.
        members: Which of them were looked at.
        targets: Their classes by number.
        probabilities: ``[n, K]``.
        classes: Names by number.
    """
    confidence, labels = probabilities.max(1)
    wrong = [
        {
            "path": folder.relative(folder.paths[members[k]]),
            "truth": classes[int(targets[k])],
            "predicted": classes[int(labels[k])],
            "probability": float(confidence[k]),
        }
        for k in np.flatnonzero((labels != targets).numpy()).tolist()
    ]
    return sorted(wrong, key=lambda item: -float(str(item["probability"])))


def tested(classifier: SceneClassifier, folder: SceneFolder, on_error: OnError) -> Run:
    """What a fitted model reaches on all images of a folder, whose classes must be among the model's.

    Raises:
        DataError: If the folder has a class that the model does not know, or no image can be read.
    """
    known = [str(name) for name in classifier.classes_]
    strange = [name for name in folder.classes if name not in known]
    if strange:
        raise unknown_class(strange[0], known)
    kept, found, _ = classifier.predict_readable(folder.paths, on_error)
    if not kept:
        raise DataError("none of the images could be read")
    targets = torch.tensor([known.index(folder.labels[i]) for i in kept])
    probabilities = torch.from_numpy(found)
    logits = probabilities.clamp_min(1e-300).log()
    temperature = classifier.metrics_.get("temperature")  # the model's probabilities are with it, if there is one
    scores = asdict(score(logits * (temperature or 1), targets, len(known), temperature or 1))
    return (scores if temperature else scores | {"ece_calibrated": None, "temperature": None}) | {
        "train_images": classifier.provenance_.get("images"),
        "test_images": len(kept),
        "engine": classifier.engine_.name,
        "weights": classifier.backbone_["source"],
        "wrong": mistakes(folder, kept, targets, probabilities, known),
    }


def evaluate_model(classifier: SceneClassifier, folder: SceneFolder, on_error: OnError) -> dict[str, Any]:
    """The summary of :func:`tested`."""
    begin = time.perf_counter()
    run = tested(classifier, folder, on_error)
    return summarise([run], [str(name) for name in classifier.classes_]) | {
        "configuration": classifier.model_.config.model_dump(mode="json"),
        "seconds": time.perf_counter() - begin,
        "wrong": run["wrong"],
    }
