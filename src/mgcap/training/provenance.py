"""What a trained model says of itself: where it comes from, and what was measured on the way."""

from __future__ import annotations

import datetime
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mgcap._version import __version__
from mgcap.errors import MgcapError
from mgcap.inference.sample import TrainingSample
from mgcap.inference.unknown import Limits
from mgcap.training.outcome import Outcome
from mgcap.training.setup import Setup

#: In the metrics: percentiles 0 to 100 of the largest probability of training images while they were held out.
CONFIDENCE = "held_out_confidence_percentiles"
CV_ACCURACY = "cross_validated_head_accuracy_on_training_images"


def made() -> dict[str, Any]:
    """By what and when a model was made."""
    return {
        "versions": {"mgcap": __version__, "torch": torch.__version__, "python": platform.python_version()},
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }


def provenance_of(
    setup: Setup,
    found: Outcome,
    backbone: dict[str, Any],
    weighted: bool,
    class_weight: Any = None,
    labels: Sequence[Any] = (),
) -> dict[str, Any]:
    """Where a model comes from.

    Args:
        setup: How it was trained.
        found: What training found.
        backbone: Where its weights are from.
        weighted: Whether images counted differently.
        class_weight: The estimator's parameter.
        labels: The classes as they were given.
    """
    assert found.engine is not None
    more: dict[str, Any] = {"weighted": True} if weighted else {}
    if setup.finetune is not None:
        more["finetune"] = setup.finetune.model_dump(mode="json")
    return {
        "images": len(found.kept),
        "skipped": len(found.skipped),
        "seed": int(setup.runtime.seed),
        "regularisation": found.regularisation,
        "parameters": _parameters(setup, class_weight, labels),
        "weights": backbone["source"],
        "engine": found.engine.name,
        "descriptor": "own" if found.universal is None else found.universal.provenance(),
        **made(),
        **more,
    }


def _parameters(setup: Setup, class_weight: Any, labels: Sequence[Any]) -> dict[str, Any]:
    """What was asked for, where that is not the same as what was found; of a file its name alone."""
    weights = str(setup.weights)
    if weights not in ("imagenet", "random"):
        weights = "".join(character if character.isprintable() else "?" for character in Path(weights).name)
    strength = setup.regularisation
    if isinstance(class_weight, Mapping):
        class_weight = {str(label): float(class_weight[label]) for label in labels if label in class_weight}
    return {
        "weights": weights,
        "descriptor": setup.descriptor,
        "regularisation": strength if isinstance(strength, str) else float(strength),
        "class_weight": class_weight,
        "composed": int(setup.composed),
    }


def given_parameters(provenance: Mapping[str, Any], labels: Sequence[Any]) -> dict[str, Any]:
    """The parameters of the estimator that a model was trained by, as far as its file says.

    Args:
        provenance: Of the file.
        labels: Its classes as they were given.
    """
    said = provenance.get("parameters") or {}
    # files of the first version say nothing: the axes were those of the training images
    descriptor = "own" if provenance.get("descriptor", "own") == "own" else "universal"
    weights = "random" if provenance.get("weights") == "random" else "imagenet"
    class_weight = said.get("class_weight")
    if isinstance(class_weight, Mapping):
        class_weight = {label: class_weight[str(label)] for label in labels if str(label) in class_weight}
    return {
        "weights": said.get("weights", weights),
        "descriptor": said.get("descriptor", descriptor),
        "regularisation": said.get("regularisation", "auto"),
        "class_weight": class_weight,
        "composed": said.get("composed", 0),
        "seed": provenance.get("seed") or 0,
        "finetune": provenance.get("finetune"),
    }


def metrics_of(found: Outcome) -> dict[str, Any]:
    """What was measured in training."""
    metrics: dict[str, Any] = {}
    if found.history is not None:
        metrics["epochs"] = found.history.epochs
        if found.temperature is not None:
            metrics["temperature"] = found.temperature
    elif found.cv_accuracy is not None:
        metrics[CV_ACCURACY] = found.cv_accuracy
        if found.temperature is not None:
            metrics["temperature"] = found.temperature
    if found.held_out is not None:
        metrics[CONFIDENCE] = percentiles(found.held_out)
    return metrics


def percentiles(probabilities: Tensor) -> list[float]:
    """Percentiles 0 to 100 of the largest probability."""
    values = np.percentile(probabilities.amax(1).cpu().numpy(), np.arange(101))
    return [round(float(value), 6) for value in values]


def held_out_quantile(metrics: dict[str, Any], provenance: dict[str, Any], rate: float) -> float:
    """The quantile of the confidence of held-out training images.

    Raises:
        MgcapError: If the rate is impossible, or no image was held out.
    """
    if not 0 < rate < 1:
        raise MgcapError(f"the rate of false rejections must lie between 0 and 1, not {rate}")
    percentiles = metrics.get(CONFIDENCE)
    if not percentiles:
        how = "validation=0.1" if "finetune" in provenance else "regularisation='auto'"
        raise MgcapError(f"this model knows no held-out confidence; train it with {how}")
    return float(np.interp(rate, np.linspace(0, 1, len(percentiles)), percentiles))


def limits(sample: TrainingSample | None, metrics: dict[str, Any], provenance: dict[str, Any], alpha: float) -> Limits:
    """Beyond which distance and below which probability something is unknown to a model.

    Args:
        sample: Of what it was trained on, if it has one.
        metrics: Of the model.
        provenance: Of the model.
        alpha: Share of held-out training images beyond each limit; 0 is off.

    Raises:
        MgcapError: If the share is impossible, or the model knows neither.
    """
    if not 0 <= alpha < 1:
        raise MgcapError(f"`unknown` takes 0 (off) to 1, not {alpha}")
    if not alpha:
        return Limits()
    if sample is None:
        return Limits(confidence=held_out_quantile(metrics, provenance, alpha))
    known = metrics.get(CONFIDENCE)
    return Limits(sample.threshold(alpha), held_out_quantile(metrics, provenance, alpha) if known else 0.0)
