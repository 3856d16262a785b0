"""A stand-in for timm, which imports only where torchvision works."""

from __future__ import annotations

import sys
import types
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from mgcap import MGCAP, MGCAPConfig, SceneClassifier
from mgcap.backbones import build_backbone, find_backbone
from mgcap.backbones.pretrained import load_weights, load_weights_file
from mgcap.errors import WeightsError
from tests.conftest import TINY

NAME = "timm:convnext_tiny"
MEAN, STD = (0.5, 0.4, 0.3), (0.2, 0.25, 0.3)


class _Features(nn.Module):
    def __init__(self, stages: int, pretrained: bool) -> None:
        super().__init__()
        self.stages = nn.ModuleList(nn.Conv2d(3 if i == 0 else 20, 20, 3, 2, 1) for i in range(stages))
        self.pretrained_cfg = {"mean": MEAN, "std": STD}
        if pretrained:
            nn.init.constant_(self.stages[0].bias, 7.0)

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        for stage in self.stages:
            x = stage(x)
        return [x]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, dict[str, object]]]:
    """What timm is asked for."""
    found = []

    def create_model(name: str, **given: object) -> nn.Module:
        found.append((name, given))
        return _Features(given.get("out_indices", (3,))[0] + 1, given["pretrained"])

    monkeypatch.setitem(sys.modules, "timm", types.SimpleNamespace(create_model=create_model))
    return found


def test_timm_is_optional(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(ValueError, match="pip install timm"):
        build_backbone("timm:anything")
    with pytest.raises(WeightsError, match=r"weights of 'anything'.*pip install timm"):
        load_weights("timm:anything")


def test_a_network_is_built_without_fetching(calls: list[tuple[str, dict[str, object]]]) -> None:
    assert build_backbone(NAME, "stage3")(torch.zeros(1, 3, 32, 32)).shape[1] == 20
    assert calls == [("convnext_tiny", {"pretrained": False, "features_only": True, "out_indices": (2,)})]
    with pytest.raises(ValueError, match="stage1"):
        build_backbone(NAME, "conv5")
    with pytest.raises(ValueError, match="activated"):
        build_backbone(NAME, "stage3", activated=False)
    model = MGCAP(MGCAPConfig(backbone=NAME, channels=6, size=32, rotations=1))
    assert model(torch.rand(1, 3, 32, 32)).shape == (1, 21)
    assert model.mean.flatten().tolist() == pytest.approx(MEAN) and model.std.flatten().tolist() == pytest.approx(STD)


def test_pretrained_weights_are_loaded(calls: list[tuple[str, dict[str, object]]]) -> None:
    found = load_weights(NAME)
    assert calls == [("convnext_tiny", {"pretrained": True, "features_only": True})]
    network = build_backbone(NAME, "stage2")
    network.load_state_dict(found.state)  # stages behind the tap are dropped
    assert (network.net.stages[0].bias == 7).all() and len(network.net.stages) == 2


def test_weights_from_a_file(tmp_path: Path, calls: list[tuple[str, dict[str, object]]]) -> None:
    state = build_backbone(NAME, "stage4").state_dict()
    save_file(state, tmp_path / "own.safetensors")
    assert load_weights_file(tmp_path / "own.safetensors", NAME).state.keys() == state.keys()
    save_file({"other": torch.zeros(1)}, tmp_path / "own.safetensors")
    with pytest.raises(WeightsError, match="names of timm:convnext_tiny's layers"):
        load_weights_file(tmp_path / "own.safetensors", NAME)


def test_a_saved_model_carries_its_weights(tmp_path: Path, calls: list[tuple[str, dict[str, object]]]) -> None:
    images, labels = torch.rand(6, 3, 64, 64), list("aabbab")
    given = TINY | {"backbone": NAME, "layer": "stage2", "weights": "imagenet", "cache": False}
    model = SceneClassifier(**given).fit(images, labels)
    model.save(tmp_path / "m.mgcap")
    calls.clear()
    loaded = SceneClassifier.load(tmp_path / "m.mgcap", engine="torch")
    assert calls and not any(given["pretrained"] for _, given in calls)
    assert (loaded.predict_proba(images) == model.predict_proba(images)).all()


@pytest.mark.parametrize("name", ["timm:", "timm:hf-hub:a/b", "timm:local-dir:/etc", "timm:../a"])
def test_timm_is_asked_for_models_of_its_own_only(name: str) -> None:
    with pytest.raises(ValueError, match="letters, digits"):
        find_backbone(name)
