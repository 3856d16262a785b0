from __future__ import annotations

import pytest
import torch

from mgcap.backbones import build_backbone
from mgcap.baselines import recurrent
from mgcap.baselines.method import Tools
from mgcap.baselines.recurrent import Rtn, TransformerNetwork, ranking_loss
from tests.baselines.shades import shades


def test_ranking_wants_finer_scales_to_be_more_confident() -> None:
    sure, unsure = torch.tensor([[4.0, 0.0]]), torch.tensor([[0.0, 0.0]])
    targets = torch.tensor([0])
    p = float(torch.sigmoid(torch.tensor(4.0)))
    assert float(ranking_loss([unsure, sure, sure], targets)) == pytest.approx(0.05)
    assert float(ranking_loss([sure, unsure, unsure], targets)) == pytest.approx(p - 0.5 + 0.05 + 0.05, rel=1e-5)


def test_transformers_begin_with_a_zoom_and_move(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    net = TransformerNetwork(build_backbone("alexnet", "conv2").eval(), 192, 3)
    _, maps = net(torch.rand(2, 3, 64, 64))
    assert len(maps) == 2 and torch.equal(maps[0][0], torch.tensor([[0.8, 0, 0], [0, 0.8, 0]]))
    monkeypatch.setattr(recurrent, "BATCH", 3)
    monkeypatch.setattr(recurrent, "FIRST_STRENGTH", 10.0)  # begin unsure, so that there is something to learn
    images, labels = shades(6)
    method = Rtn(Tools(), "alexnet", "random", epochs=12).fit(images, labels)
    for module in method.net.locate:
        assert float((module.bias.detach() - torch.tensor([0.8, 0, 0, 0, 0.8, 0])).abs().max()) > 1e-4
        assert bool(module.weight.any())
    entropy, ranking = zip(*method.losses, strict=True)
    assert entropy[-1] < entropy[0]
    assert ranking[-1] < ranking[0]
    assert set(method.predict(images)) <= set(labels)


def test_training_begins_with_principal_channels_and_solved_classifiers() -> None:
    images, labels = shades(6)
    method = Rtn(Tools(), "alexnet", "random", epochs=0).fit(images, labels)
    kept = method.net.reduce.weight.flatten(1)
    torch.testing.assert_close(kept @ kept.T, torch.eye(len(kept)), atol=1e-4, rtol=0)
    assert method.predict(images).tolist() == labels


def test_a_class_with_one_image_and_the_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recurrent, "FIRST_STRENGTH", 10.0)
    images, labels = shades(5)
    methods = [Rtn(Tools(), "alexnet", "random", epochs=1).fit(images, labels) for _ in range(2)]
    assert labels.count("light") == 1
    assert methods[0].losses == methods[1].losses
    assert methods[0].predict(images).tolist() == methods[1].predict(images).tolist()
