from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from typer.testing import CliRunner

from mgcap.backbones import build_backbone
from mgcap.backbones import pretrained as weights
from mgcap.cli import app, demo
from mgcap.errors import WeightsError
from tests.backbones.fakes import publish


@pytest.fixture
def alexnet_at_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand-ins for downloads: the first backbone cannot be had, the second is in the cache."""
    torch.manual_seed(0)
    state = build_backbone("alexnet").state_dict()
    publish(monkeypatch, "alexnet", weights.state_hash(state))
    publish(monkeypatch, "vgg16", "")
    path = weights.cached_path("alexnet")
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file(state, path)
    monkeypatch.setattr(demo, "BACKBONES", ("vgg16", "alexnet"))

    def offline(say: object) -> Path:
        raise WeightsError("the scene cannot be had")

    monkeypatch.setattr("mgcap.data.sample_scene.sample_scene", offline)


def test_demo_continues_with_what_it_can_get_and_reuses_it(alexnet_at_hand: None, tmp_path: Path) -> None:
    arguments = ["demo", "--out", str(tmp_path / "out"), "--per-class", "4"]
    first = CliRunner().invoke(app, arguments)
    assert first.exit_code == 0, first.output
    assert "vgg16 could not be had; the demo continues with alexnet" in first.stderr
    assert "accuracy on 38 held-out scenes" in first.stdout
    assert "no map in this demo: the scene cannot be had" in first.stderr
    for name in ("scenes", "split.csv", "model.mgcap", "predictions.json", "report.html"):
        assert (tmp_path / "out" / name).exists() and name in first.stdout
    before = (tmp_path / "out" / "model.mgcap").read_bytes()
    second = CliRunner().invoke(app, arguments)
    assert "is used again" in second.stderr
    assert (tmp_path / "out" / "model.mgcap").read_bytes() == before


def test_demo_without_any_weights_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    publish(monkeypatch, "vgg16", "")
    monkeypatch.setattr(demo, "BACKBONES", ("vgg16",))
    done = CliRunner().invoke(app, ["demo", "--out", str(tmp_path / "out")])
    assert done.exit_code == 1 and "no ImageNet weights could be had" in done.stderr
