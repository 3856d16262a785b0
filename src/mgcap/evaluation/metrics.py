"""How good predictions are."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from sklearn.metrics import cohen_kappa_score, confusion_matrix, f1_score
from torch import Tensor

#: Bins of the expected calibration error.
ECE_BINS = 15


@dataclass(frozen=True)
class Scores:
    """What one run reached, in percent where it is a share."""

    accuracy: float
    macro_f1: float
    kappa: float  #: Cohen's, between -1 and 1
    ece: float  #: expected calibration error of the probabilities as they are
    ece_calibrated: float  #: and after the temperature
    temperature: float
    loss: float  #: mean cross-entropy after the temperature
    per_class: tuple[float, ...]  #: accuracy of each class
    confusion: tuple[tuple[int, ...], ...]  #: [truth][prediction]


def expected_calibration_error(probabilities: Tensor, targets: Tensor, bins: int = ECE_BINS) -> float:
    """Mean distance between confidence and accuracy over bins of confidence, in percent."""
    confidence, labels = probabilities.double().max(1)
    right = (labels == targets).double()
    edges = torch.linspace(0, 1, bins + 1, dtype=torch.float64)
    where = torch.bucketize(confidence, edges[1:-1], right=True)
    gap = torch.zeros(bins, dtype=torch.float64).scatter_add_(0, where, confidence - right)
    return 100 * float(gap.abs().sum()) / len(targets)


def score(logits: Tensor, targets: Tensor, classes: int, temperature: float = 1.0) -> Scores:
    """Everything about logits ``[n, K]`` of test images and their classes."""
    truth, labels = targets.numpy(), logits.argmax(1).numpy()
    matrix = confusion_matrix(truth, labels, labels=np.arange(classes))
    totals = matrix.sum(1)
    per_class = np.divide(100.0 * matrix.diagonal(), totals, out=np.full(classes, np.nan), where=totals > 0)
    cooled = logits.double() / temperature
    present = np.flatnonzero(totals)
    return Scores(
        accuracy=100 * float((labels == truth).mean()),
        macro_f1=100 * float(f1_score(truth, labels, labels=present, average="macro", zero_division=0.0)),
        kappa=float(cohen_kappa_score(truth, labels)) if len(present) > 1 else float("nan"),
        ece=expected_calibration_error(logits.double().softmax(1), targets),
        ece_calibrated=expected_calibration_error(cooled.softmax(1), targets),
        temperature=temperature,
        loss=float(F.cross_entropy(cooled, targets)),
        per_class=tuple(per_class.tolist()),
        confusion=tuple(tuple(int(v) for v in row) for row in matrix),
    )


def wilson_interval(share: float, count: int) -> tuple[float, float]:
    """The 95 % confidence interval of a share that was found in ``count`` trials (Wilson, 1927)."""
    z = 1.959964
    centre = (share + z * z / (2 * count)) / (1 + z * z / count)
    half = z / (1 + z * z / count) * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count))
    return max(0.0, centre - half), min(1.0, centre + half)
