"""What a trained model says of itself: where it comes from, and what was measured on the way."""

from __future__ import annotations

import datetime
import platform
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mgcap._version import __version__
from mgcap.training.setup import Setup
from mgcap.training.stages import Outcome

#: In the metrics: percentiles 0 to 100 of the largest probability of training images while they were held out.
CONFIDENCE = "held_out_confidence_percentiles"
CV_ACCURACY = "cross_validated_head_accuracy_on_training_images"


def made() -> dict[str, Any]:
    """By what and when a model was made."""
    return {
        "versions": {"mgcap": __version__, "torch": torch.__version__, "python": platform.python_version()},
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }


def provenance_of(setup: Setup, found: Outcome, backbone: dict[str, Any], weighted: bool) -> dict[str, Any]:
    """Where a model comes from."""
    assert found.engine is not None
    more: dict[str, Any] = {"weighted": True} if weighted else {}
    if setup.finetune is not None:
        more["finetune"] = setup.finetune.model_dump(mode="json")
    return {
        "images": len(found.kept),
        "skipped": len(found.skipped),
        "seed": setup.runtime.seed,
        "regularisation": found.regularisation,
        "weights": backbone["source"],
        "engine": found.engine.name,
        "descriptor": "own" if found.universal is None else found.universal.provenance(),
        **made(),
        **more,
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
    if found.held_out is not None:
        metrics[CONFIDENCE] = percentiles(found.held_out)
    return metrics


def percentiles(probabilities: Tensor) -> list[float]:
    """Percentiles 0 to 100 of the largest probability."""
    values = np.percentile(probabilities.amax(1).cpu().numpy(), np.arange(101))
    return [round(float(value), 6) for value in values]
