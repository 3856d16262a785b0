from __future__ import annotations

import hashlib
import re
import shutil
from pathlib import Path

import pytest
import torch

from mgcap.backbones import BACKBONES, build_backbone
from mgcap.backbones import pretrained as weights
from mgcap.backbones.readers import read_torch
from mgcap.errors import WeightsError
from tests.backbones.fakes import publish


class _Local:
    """A source that hands out a file."""

    def __init__(self, path: Path) -> None:
        self.path, self.calls = path, 0
        self._sha256 = hashlib.sha256(path.read_bytes()).hexdigest()

    def __str__(self) -> str:
        return "local"

    @property
    def sha256(self) -> str:
        return self._sha256

    def download(self, folder: Path) -> Path:
        self.calls += 1
        if not self.path.exists():
            raise WeightsError("local: gone")
        return self.path


def test_fetched_once_checked_always(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = build_backbone("alexnet").state_dict()
    torch.save({**state, "classifier.6.weight": torch.zeros(3)}, tmp_path / "net.pth")
    source = _Local(tmp_path / "net.pth")
    publish(monkeypatch, "alexnet", weights.state_hash(state), [(source, read_torch)])
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
    with pytest.raises(WeightsError, match=r"could not be fetched .*gone.*`weights=FILE`"):
        weights.load_weights("alexnet")
    with pytest.raises(WeightsError, match="no weights are catalogued for 'nothing'"):
        weights.load_weights("nothing")


def test_a_cache_of_older_days_is_still_good(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = build_backbone("resnet50-v1", "stage5").state_dict()
    publish(monkeypatch, "resnet50-v1", weights.state_hash(state))
    path = weights.cached_path("resnet50-v1")
    path.parent.mkdir(parents=True)
    weights.save_file(state, path, {"name": "resnet50-v1", "source": "elsewhere", "sha256": "0" * 64})
    found = weights.load_weights("resnet50-v1")
    assert set(found.state) == set(state)
    assert all(torch.equal(found.state[name], state[name]) for name in state)
    # what the file says of itself is not even looked at
    data = path.read_bytes()
    header = int.from_bytes(data[:8], "little")
    path.write_bytes(b"\xff" * 8 + b"?" * header + data[8 + header :])
    assert weights.load_weights("resnet50-v1").sha256 == found.sha256


def _forged(name: str) -> Path:
    """Other numbers in the cache, in a file that vouches for itself."""
    state = {
        key: tensor + 1 for key, tensor in build_backbone(name, list(BACKBONES[name].layers)[-1]).state_dict().items()
    }
    path = weights.cache_dir() / "weights" / f"{name}.safetensors"
    path.parent.mkdir(parents=True, exist_ok=True)
    weights.save_file(state, path, {"sha256": weights.state_hash(state), "source": "forger"})
    return path


@pytest.mark.parametrize("name", sorted(BACKBONES))
def test_a_forged_cache_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    forged = _forged(name)
    published = BACKBONES[name].weights
    pinned, attempts = published.sha256, published.sources

    def unreachable(what: str, *_: object) -> None:
        raise WeightsError("unreachable")

    monkeypatch.setattr(weights, "fetch_first", unreachable)
    with pytest.raises(WeightsError, match="unreachable"):
        weights.load_weights(name)
    if not pinned:  # the file under its right name is refused, too, and nobody reads it
        shutil.copyfile(forged, weights.cached_path(name))
        read: list[Path] = []
        publish(monkeypatch, name, "", [(attempts[0][0], lambda path: read.append(path) or {})])
        with pytest.raises(WeightsError, match="unreachable"):
            weights.load_weights(name)
        assert not read


def test_a_published_file_is_kept_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = build_backbone("resnet18", "stage5").state_dict()
    torch.save({**state, "fc.weight": torch.zeros(3)}, tmp_path / "net.pth")
    source = _Local(tmp_path / "net.pth")
    read: list[Path] = []

    def reader(path: Path) -> dict[str, torch.Tensor]:
        read.append(path)
        return read_torch(path)

    publish(monkeypatch, "resnet18", "", [(source, reader)])
    first = weights.load_weights("resnet18")
    path = weights.cached_path("resnet18")
    published = (tmp_path / "net.pth").read_bytes()
    assert path.read_bytes() == published
    second = weights.load_weights("resnet18")
    assert source.calls == 1 and read == [tmp_path / "net.pth", path]
    assert second.sha256 == first.sha256 == weights.state_hash(state) and second.source == first.source == "local"
    # one byte changed: it is fetched again, and the altered file was not opened by the reader
    path.write_bytes(published[:-1] + bytes([published[-1] ^ 1]))
    said: list[str] = []
    assert weights.load_weights("resnet18", said.append).sha256 == first.sha256
    assert "is not the file it should be; fetching it again" in said[0]
    assert source.calls == 2 and read[2:] == [tmp_path / "net.pth"] and path.read_bytes() == published


class _Gone:
    """A source that answers no more."""

    sha256 = "0" * 64

    def download(self, folder: Path) -> Path:
        raise WeightsError("gone")


@pytest.mark.parametrize("name", ["alexnet", "resnet18"])
def test_nothing_in_the_cache_is_parsed_before_its_hash_is_right(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def parse(*args: object, **kwargs: object) -> None:
        raise AssertionError("a file was parsed that nobody vouches for")

    forged = _forged(name)
    if forged != weights.cached_path(name):
        shutil.copyfile(forged, weights.cached_path(name))
    for function in ("torch.load", "mgcap.backbones.readers.safe_open", "safetensors.safe_open"):
        monkeypatch.setattr(function, parse)
    monkeypatch.setattr(weights, "safe_open", parse, raising=False)
    publish(monkeypatch, name, BACKBONES[name].weights.sha256, [(_Gone(), read_torch)])
    with pytest.raises(WeightsError, match="gone"):
        weights.load_weights(name)


def test_a_backbone_without_a_pinned_download(monkeypatch: pytest.MonkeyPatch) -> None:
    publish(monkeypatch, "googlenet", "")
    with pytest.raises(
        WeightsError, match="no pinned download is known for googlenet; give a file with `weights=FILE`"
    ):
        weights.load_weights("googlenet")
    assert not weights.is_cached("googlenet")


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
    (tmp_path / "keras.h5").write_bytes(b"bad")
    with pytest.raises(WeightsError, match="which is the backbone resnet50-v1"):
        weights.load_weights_file(tmp_path / "keras.h5", "resnet50")
    with pytest.raises(WeightsError, match="does not hold Keras' ResNet-50"):
        weights.load_weights_file(tmp_path / "keras.h5", "resnet50-v1")


def test_the_users_own_file_holds_finite_weights(tmp_path: Path) -> None:
    state = build_backbone("alexnet").state_dict()
    key = "features.0.bias"
    for number in (float("nan"), float("inf")):
        state[key][3] = number
        weights.save_file(state, tmp_path / "a.safetensors")
        with pytest.raises(WeightsError, match=rf"numbers in {re.escape(key)} that are not finite"):
            weights.load_weights_file(tmp_path / "a.safetensors", "alexnet")
    for odd in (torch.eye(4).to_sparse(), torch.empty(3, device="meta")):
        torch.save({**state, key: odd}, tmp_path / "a.pth")
        with pytest.raises(WeightsError, match="tensors that are no weights") as caught:
            weights.load_weights_file(tmp_path / "a.pth", "alexnet")
        assert len(str(caught.value).splitlines()) == 1


def test_whatever_a_reader_raises_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object, **kwargs: object) -> None:
        raise KeyError("first line\nand a page of advice")

    monkeypatch.setattr("mgcap.backbones.readers.safe_open", fail)
    monkeypatch.setattr("torch.load", fail)
    for name in ("a.safetensors", "a.pth"):
        (tmp_path / name).touch()
        with pytest.raises(WeightsError, match="first line") as caught:
            weights.load_weights_file(tmp_path / name, "alexnet")
        assert len(str(caught.value).splitlines()) == 1
    (tmp_path / "real.pth").write_bytes(b"\x80\x02cos\nsystem\nX\x01\x00\x00\x00a\x85R.")
    monkeypatch.undo()
    with pytest.raises(WeightsError, match="not a state dict") as caught:
        weights.load_weights_file(tmp_path / "real.pth", "alexnet")
    assert len(str(caught.value).splitlines()) == 1


def test_every_backbone_has_sources_with_whole_hashes() -> None:
    for record in BACKBONES.values():
        assert record.weights and record.weights.licence
        for source, _ in record.weights.sources:
            assert re.fullmatch("[0-9a-f]{64}", source.sha256)
            if found := re.search(r"-([0-9a-f]{8})\.pth$", str(source)):  # torchvision's names carry the first digits
                assert source.sha256.startswith(found[1])
    for name in ("vgg16", "alexnet", "inception_v3", "mobilenet_v2", "resnet50-v1"):
        assert len(BACKBONES[name].weights.sha256) == 64


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
