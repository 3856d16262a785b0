from __future__ import annotations

import sys
import types

import numpy as np
import pytest
import scipy.linalg
import torch
import torch.nn.functional as F

from mgcap.backbones import build_backbone
from mgcap.baselines import discriminative, recurrent, timm_models
from mgcap.baselines.discriminative import TrainedNetwork, pair_loss
from mgcap.baselines.invariant import GroupCovariance, Idccp, dihedral
from mgcap.baselines.method import Tools
from mgcap.baselines.networks import Layer, averaged, prepared
from mgcap.baselines.recurrent import Rtn, TransformerNetwork, ranking_loss
from mgcap.baselines.stacked import StackedCovariance, stacked
from mgcap.baselines.svm import DescriptorSvm
from mgcap.errors import MgcapError

IMAGES = torch.rand(3, 3, 256, 256, generator=torch.Generator().manual_seed(0))


def _shades(count: int) -> tuple[list[torch.Tensor], list[str]]:
    """Dark, striped and light images with some noise."""
    rng = torch.Generator().manual_seed(1)
    images, labels = [], []
    for k in range(count):
        image = torch.rand(3, 256, 256, generator=rng) * 0.2 + (0.0, 0.4, 0.8)[k % 3]
        if k % 3 == 1:
            image[:, ::16] = 0
        images.append(image)
        labels.append(("dark", "striped", "light")[k % 3])
    return images, labels


def test_a_layer_is_the_network_itself() -> None:
    found = Layer("alexnet", "conv4", averaged, "average", "torch", "random").rows(IMAGES)
    torch.manual_seed(0)
    network = build_backbone("alexnet", "conv4").eval()
    with torch.inference_mode():
        expected = network(prepared(IMAGES, "alexnet")).mean((-2, -1))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_frozen_features_with_a_machine() -> None:
    images, labels = _shades(9)
    method = DescriptorSvm(Tools(), Layer("alexnet", "conv2", averaged, "average", "torch", "random"))
    assert method.fit(images, labels).predict(images).tolist() == labels


def test_stacked_channels_have_mean_zero_and_variance_one() -> None:
    maps = [torch.rand(2, 8, 6, 6), torch.rand(2, 4, 3, 3)]
    channels = stacked(maps, 2)
    assert channels.shape == (2, 6, 9)
    torch.testing.assert_close(channels.mean(-1), torch.zeros(2, 6), atol=1e-5, rtol=0)
    torch.testing.assert_close(channels.square().mean(-1), torch.ones(2, 6))
    pooled = maps[0][0, :2].mean(0).reshape(3, 2, 3, 2).mean((1, 3))  # the first channel: two maps, 2 x 2 pixels
    expected = (pooled - pooled.mean()) / pooled.std(correction=0)
    torch.testing.assert_close(channels[0, 0].view(3, 3), expected)


def test_mscp_is_the_logarithm_of_the_covariance() -> None:
    descriptor = StackedCovariance("alexnet", weights="random")
    row = descriptor.rows(IMAGES[:1])[0].double().numpy()
    torch.manual_seed(0)
    network = build_backbone("alexnet", "conv5").eval()
    x, maps = prepared(IMAGES[:1], "alexnet"), []
    with torch.inference_mode():
        for module in network.features:
            x = module(x)
            if isinstance(module, torch.nn.ReLU):
                maps.append(x.clone())
    channels = stacked(maps[2:], 4)[0].double().numpy()
    matrix = channels @ channels.T / channels.shape[1]
    matrix += 1e-4 * np.trace(matrix) * np.eye(len(matrix))
    expected = scipy.linalg.logm(matrix)
    upper = np.triu_indices(len(matrix))
    scale = np.where(upper[0] == upper[1], 1, np.sqrt(2))
    np.testing.assert_allclose(row, expected[upper] * scale, atol=2e-3)
    several = StackedCovariance("alexnet", (160, 224), "random").rows(IMAGES[:1])
    assert several.shape == (1, len(row)) and not np.allclose(several[0].numpy(), row)


def test_idccp_does_not_see_turns_and_mirrors() -> None:
    descriptor = GroupCovariance("alexnet", "conv2", "torch", "random")
    rows = [descriptor.rows(turned[:1])[0] for turned in dihedral(IMAGES)]
    assert len({tuple(turned[0, 0, 0, :4].tolist()) for turned in dihedral(IMAGES)}) == 8
    for row in rows[1:]:
        torch.testing.assert_close(row, rows[0], rtol=1e-3, atol=1e-5)
    images, labels = _shades(9)
    method = Idccp(Tools(), descriptor, 12).fit(images, labels)
    assert method.predict(images).tolist() == labels
    torch.testing.assert_close(method.compression.T @ method.compression, torch.eye(12), atol=1e-4, rtol=0)


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
    images, labels = _shades(9)
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


def test_a_model_of_timm(monkeypatch: pytest.MonkeyPatch) -> None:
    class Flat(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.mean((-2, -1))

    stand_in = types.ModuleType("timm")
    stand_in.create_model = lambda name, pretrained, num_classes: Flat()  # type: ignore[attr-defined]
    config = {"mean": (0.5, 0.5, 0.5), "std": (0.25, 0.25, 0.25), "input_size": (3, 32, 32)}
    stand_in.data = types.SimpleNamespace(resolve_model_data_config=lambda model: config)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "timm", stand_in)
    timm_models._opened.cache_clear()
    rows = timm_models.PooledFeatures("flat").rows(torch.full((2, 3, 256, 256), 0.75))
    torch.testing.assert_close(rows, torch.ones(2, 3))
    images, labels = _shades(6)
    method = timm_models.timm_method("timm:flat")[1](Tools())
    method.fit(images, labels)
    assert set(method.predict(images)) <= set(labels)
    timm_models._opened.cache_clear()
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(MgcapError, match="needs timm"):
        timm_models.PooledFeatures("flat").rows(IMAGES)


def test_ranking_wants_finer_scales_to_be_surer() -> None:
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
    images, labels = _shades(6)
    method = Rtn(Tools(), "alexnet", "random", epochs=12).fit(images, labels)
    for module in method.net.locate:
        assert float((module.bias - torch.tensor([0.8, 0, 0, 0, 0.8, 0])).abs().max()) > 1e-4
        assert bool(module.weight.any())
    entropy, ranking = zip(*method.losses, strict=True)
    assert entropy[-1] < entropy[0]
    assert ranking[-1] < ranking[0]
    assert set(method.predict(images)) <= set(labels)
