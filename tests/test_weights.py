from __future__ import annotations

from pathlib import Path

import pytest
import torch

from mgcap import weights
from mgcap.backbones import BACKBONES, build_backbone
from mgcap.errors import WeightsError
from mgcap.weight_files import read_torch


class _Local:
    """A source that hands out a file."""

    def __init__(self, path: Path) -> None:
        self.path, self.calls = path, 0

    def __str__(self) -> str:
        return "local"

    def download(self, folder: Path) -> Path:
        self.calls += 1
        if not self.path.exists():
            raise WeightsError("local: gone")
        return self.path


def test_fetched_once_checked_always(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = build_backbone("alexnet").state_dict()
    torch.save({**state, "classifier.6.weight": torch.zeros(3)}, tmp_path / "net.pth")
    source = _Local(tmp_path / "net.pth")
    monkeypatch.setitem(weights.SOURCES, "alexnet", (weights.state_hash(state), [(source, read_torch)]))
    assert not weights.is_cached("alexnet")
    first = weights.load_weights("alexnet")
    assert weights.is_cached("alexnet") and first.sha256 == weights.state_hash(state)
    assert set(first.state) == set(state)
    second = weights.load_weights("alexnet")
    assert source.calls == 1 and second.sha256 == first.sha256 and second.source == "local"
    # a damaged cache is noticed and mended
    path = weights.cached_path("alexnet")
    for content in (path.read_bytes()[:-1] + b"\x00\x01", path.read_bytes()[:1000], b""):
        path.write_bytes(content)
        said: list[str] = []
        assert weights.load_weights("alexnet", said.append).sha256 == first.sha256
        assert "fetching it again" in said[0]
    assert source.calls == 4
    # numbers other than the pinned ones are refused
    path.unlink()
    torch.save({name: tensor + 1 for name, tensor in state.items()}, tmp_path / "net.pth")
    with pytest.raises(WeightsError, match="pinned"):
        weights.load_weights("alexnet")
    (tmp_path / "net.pth").unlink()
    with pytest.raises(WeightsError, match=r"could not be fetched .*gone.*--weights FILE"):
        weights.load_weights("alexnet")
    with pytest.raises(WeightsError, match="no weights are catalogued for 'timm:x'"):
        weights.load_weights("timm:x")


def test_the_users_own_file(tmp_path: Path) -> None:
    state = build_backbone("alexnet").state_dict()
    torch.save(state, tmp_path / "a.pth")
    weights.save_file(state, tmp_path / "a.safetensors")
    a, b = (weights.load_weights_file(tmp_path / name, "alexnet") for name in ("a.pth", "a.safetensors"))
    assert a.sha256 == b.sha256 == weights.state_hash(state)
    (tmp_path / "bad.safetensors").write_bytes(b"bad")
    with pytest.raises(WeightsError, match="not a readable safetensors"):
        weights.load_weights_file(tmp_path / "bad.safetensors", "alexnet")
    with pytest.raises(WeightsError, match="names of resnet18"):
        weights.load_weights_file(tmp_path / "a.pth", "resnet18")


def test_every_backbone_has_sources_and_the_main_ones_are_pinned() -> None:
    assert set(weights.SOURCES) == set(BACKBONES)
    for name in ("vgg16", "alexnet", "resnet50-v1"):
        assert len(weights.SOURCES[name][0]) == 64


def test_the_hash_depends_on_everything_but_the_order() -> None:
    a = {"x": torch.zeros(2, 3), "y": torch.ones(1)}
    assert weights.state_hash(a) == weights.state_hash(dict(reversed(a.items())))
    for other in (
        {"x": torch.zeros(3, 2), "y": torch.ones(1)},
        {"x": torch.zeros(2, 3), "z": torch.ones(1)},
        {"x": torch.zeros(2, 3), "y": torch.ones(1).double()},
        {"x": torch.zeros(2, 3), "y": torch.ones(1) * 2},
    ):
        assert weights.state_hash(other) != weights.state_hash(a)
