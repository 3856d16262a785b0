from __future__ import annotations

import numpy as np
from sklearn.linear_model import LogisticRegression

from mgcap.backbones import build_backbone
from mgcap.baselines.averaged import AveragedSoftmax
from mgcap.baselines.method import Tools
from mgcap.baselines.networks import Layer, averaged
from tests.baselines.shades import shades


def test_it_answers_as_logistic_regression_on_the_averaged_features() -> None:
    """scikit-learn's, on the same features with the strength that cross-validation chose."""
    images, labels = shades(9)
    method = AveragedSoftmax(Tools(), Layer("alexnet", "conv2", averaged, "average", "torch", "random"))
    method.fit(images, labels)
    rows = method.rows(images).numpy()
    assert rows.shape == (len(images), 192)
    strength = 1 / (len(rows) * method.head.regularisation)
    oracle = LogisticRegression(C=strength, max_iter=10_000, tol=1e-8).fit(rows.astype(np.float64), labels)
    assert method.predict(images).tolist() == oracle.predict(rows).tolist() == labels


def test_its_numbers_are_those_of_network_and_softmax() -> None:
    images, labels = shades(6)
    method = AveragedSoftmax(Tools(), Layer("alexnet", "conv2", averaged, "average", "torch", "random"))
    network = sum(p.numel() for p in build_backbone("alexnet", "conv2").parameters())
    assert method.fit(images, labels).parameters() == network + (192 + 1) * len(set(labels))
