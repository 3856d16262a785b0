from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from mgcap.baselines import discriminative
from mgcap.baselines.discriminative import TrainedNetwork, pair_loss
from mgcap.baselines.method import Tools
from tests.baselines.shades import shades


def test_the_pairs_of_dcnn_by_loops() -> None:
    features, targets = torch.randn(5, 4), torch.tensor([0, 1, 0, 1, 2])
    unit = F.normalize(features, dim=1).numpy()
    terms = []
    for i in range(5):
        for j in range(i + 1, 5):
            sign = 1 if targets[i] == targets[j] else -1
            terms.append(max(0.0, 0.5 - sign * (0.75 - float(((unit[i] - unit[j]) ** 2).sum()))))
    assert float(pair_loss(features, targets, 0.5, 0.75)) == pytest.approx(np.mean(terms), rel=1e-5)
    assert float(pair_loss(features[:1], targets[:1])) == 0


def test_dcnn_trains_its_upper_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    images, labels = shades(9)
    monkeypatch.setattr(discriminative, "BATCH", 5)
    made = []
    for _ in range(2):
        method = TrainedNetwork(Tools(engine="torch"), "alexnet", 0.05, "random", epochs=3)
        lower = [p.clone() for p in method.lower.parameters()]
        upper = [p.clone() for p in method.upper.parameters()]
        method.fit(images, labels)
        assert all(torch.equal(a, b) for a, b in zip(lower, method.lower.parameters(), strict=True))
        assert any(not torch.equal(a, b) for a, b in zip(upper, method.upper.parameters(), strict=True))
        made.append(method)
    assert made[0].losses == made[1].losses and made[0].losses[-1][0] < made[0].losses[0][0]
    assert set(made[0].predict(images)) <= set(labels) and made[0].parameters() > 2_000_000
