"""Logits of many configurations, as the release before the forward pass was written once computed them.

``golden.json`` has them. The weights are made here, by the names of tensors, and all is in float64, so that other
machines find the same.
"""

from __future__ import annotations

import json
import math
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from mgcap import MGCAP, MGCAPConfig

FILE = Path(__file__).with_name("golden.json")

_PAPER = {"preset": "paper", "backbone": "alexnet", "size": 64}
_CODE = {"preset": "authors-code", "backbone": "alexnet", "size": 64, "rotations": 4}
_COMPACT = {"backbone": "resnet18", "layer": "stage3", "channels": 16, "size": 64}
CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "paper": _PAPER,
    "paper, log": {**_PAPER, "normalisation": "log"},
    "paper, log with clipped eigenvalues": {**_PAPER, "rotations": 3, "normalisation": "log", "clip": (1e-2, 1e2)},
    "paper, bilinear": {**_PAPER, "rotations": 3, "normalisation": "bilinear"},
    "paper, VGG-16 with shared granularities": {
        "preset": "paper", "layer": "conv3_3", "size": 48, "rotations": 2, "share_granularities": True,
    },
    "paper, five rotations of one granularity": {**_PAPER, "rotations": 5, "granularities": (0.7,)},
    "authors' code": _CODE,
    "authors' code, log": {**_CODE, "normalisation": "log"},
    "authors' code, bilinear": {**_CODE, "normalisation": "bilinear"},
    "authors' code, triangle": {**_CODE, "vector": "triangle", "signed_root": False},
    "compact": _COMPACT,
    "compact, ResNet-50": {"channels": 16, "size": 64, "rotations": 2},
    "compact, log": {**_COMPACT, "normalisation": "log"},
    "compact, bilinear": {**_COMPACT, "normalisation": "bilinear"},
    "compact, mean over rotations": {**_COMPACT, "rotation_pooling": "mean"},
    "compact, covariance": {**_COMPACT, "embedding": "covariance", "unbiased": True, "feature_norm": "none"},
    "compact, Newton-Schulz": {**_COMPACT, "spectral_method": "newton-schulz"},
    "compact, learnt": {**_COMPACT, "reduction": "learnt", "fusion": "sum", "fusion_norm": "frobenius"},
    "compact, padded": {**_COMPACT, "frame": "padded", "activated": False, "field_of_view": 0.8, "vector": "full"},
    "GoogLeNet": {**_COMPACT, "backbone": "googlenet", "layer": "inception4a", "rotations": 2},
}  # fmt: skip


def _fill(model: MGCAP) -> None:
    """Weights as networks have them at the start, from a stream of numbers that numpy never changes."""
    for name, tensor in model.state_dict().items():
        if not tensor.is_floating_point():
            tensor.fill_(1)
            continue
        values = np.random.RandomState(zlib.crc32(name.encode())).standard_normal(tuple(tensor.shape))
        if name.endswith("running_var"):
            values = 1 + 0.1 * np.abs(values)
        elif tensor.ndim == 1:
            values = 0.1 * values + (name.endswith("weight"))
        else:
            values = values * math.sqrt(2 / tensor[0].numel())
        tensor.copy_(torch.from_numpy(np.asarray(values)))


def logits_of(values: dict[str, Any]) -> list[list[float]]:
    """Of two images."""
    model = MGCAP(MGCAPConfig(**values, num_classes=3)).double().eval()
    _fill(model)
    images = torch.from_numpy(np.random.RandomState(0).random_sample((2, 3, 72, 64)))
    with torch.no_grad():
        found: list[list[float]] = model(images).tolist()
    return found


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_logits_are_those_of_the_release_before(name: str) -> None:
    expected = json.loads(FILE.read_text())[name]
    np.testing.assert_allclose(logits_of(CONFIGURATIONS[name]), expected, rtol=1e-6, atol=1e-9)
