from __future__ import annotations

import shutil

import pytest
import torch
from torch import nn

from mgcap import MGCAP, MGCAPConfig
from mgcap.backbones import build_backbone
from mgcap.errors import MgcapError
from mgcap.inference.engines import check_current
from mgcap.inference.engines.torch import TorchEngine, fold_batch_norms, keep_freed_memory
from mgcap.inference.forward import answer, walk
from mgcap.inference.pipeline import stream_features


def _random_norms(network: nn.Module) -> nn.Module:
    generator = torch.Generator().manual_seed(0)
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            for tensor, low, high in (
                (module.running_mean, -1, 1),
                (module.running_var, 0.5, 2),
                (module.weight, 0.5, 2),
            ):
                tensor.data.copy_(torch.rand(tensor.shape, generator=generator) * (high - low) + low)
    return network.eval()


@pytest.mark.parametrize("name", ["resnet18", "resnet50-v1", "alexnet"])
def test_folded_networks_compute_the_same(name: str) -> None:
    torch.manual_seed(0)
    network = _random_norms(build_backbone(name))
    folded = fold_batch_norms(network)
    assert not any(isinstance(m, nn.BatchNorm2d) for m in folded.modules())
    assert any(isinstance(m, nn.BatchNorm2d) for m in network.modules()) is (name != "alexnet")
    views = torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        expected = network(views).flatten(2)
    found = TorchEngine([network]).features(views, 0)
    assert (found - expected).norm() < 1e-4 * expected.norm()


def test_each_granularity_has_its_network() -> None:
    networks = [build_backbone("alexnet").eval() for _ in range(2)]
    engine, views = TorchEngine(networks), torch.randn(1, 3, 64, 64)
    a, b = engine.features(views, 0), engine.features(views, 1)
    assert not torch.allclose(a, b)
    assert torch.allclose(b, networks[1](views).flatten(2), atol=1e-5)


def test_the_model_uses_its_engine_only_without_a_gradient() -> None:
    torch.manual_seed(0)
    model = MGCAP(MGCAPConfig(backbone="alexnet", channels=8, size=64, rotations=2, granularities=1.0)).eval()
    images = torch.rand(2, 3, 64, 64)
    with torch.no_grad():
        expected = model(images)
    engine = TorchEngine(list(model.backbones))
    with torch.no_grad():
        assert torch.equal(model(images), expected)  # the model itself is what it was
        pieces = stream_features(model, [([0, 1], images)], engine)
        found = torch.cat([answer(model, seen).logits for _, seen in walk(model, pieces)])
    assert torch.allclose(found, expected, atol=1e-5)


def test_a_stale_engine_is_noticed() -> None:
    model = MGCAP(MGCAPConfig(backbone="alexnet", channels=6, size=64, rotations=1, granularities=(1.0,))).eval()
    engine = TorchEngine(list(model.backbones))
    check_current(engine, model)
    model.load_state_dict(model.state_dict())
    with pytest.raises(MgcapError, match="changed or moved"):
        list(stream_features(model, [([0], torch.rand(1, 3, 64, 64))], engine))
    engine = TorchEngine(list(model.backbones))
    model.double()
    with pytest.raises(MgcapError, match="changed or moved"):
        check_current(engine, model)


def test_memory_setting_is_harmless_when_repeated() -> None:
    keep_freed_memory()
    keep_freed_memory()


@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler")
def test_compiled_gives_the_same_features() -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()).eval()
    views = torch.rand(3, 3, 16, 16)
    compiled = TorchEngine([network], compiled=True)
    assert compiled.fingerprint != TorchEngine([network]).fingerprint
    assert torch.allclose(compiled.features(views, 0), TorchEngine([network]).features(views, 0), atol=1e-5)


def test_a_compiler_that_fails_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(network: nn.Module, dynamic: bool) -> object:
        def run(views: torch.Tensor) -> torch.Tensor:
            raise RuntimeError("No working C++ compiler found\nand more")

        return run

    monkeypatch.setattr(torch, "compile", broken)
    with pytest.raises(MgcapError, match=r"No working C\+\+ compiler found\); use `engine=torch`"):
        TorchEngine([nn.Conv2d(3, 4, 3)], compiled=True).features(torch.rand(1, 3, 8, 8), 0)
