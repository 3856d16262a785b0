from __future__ import annotations

from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
import torch

from mgcap import SceneClassifier, backbones
from mgcap.backbones import BACKBONES, add_file, find_backbone, load_entry_points, own, register
from mgcap.errors import BundleError, MgcapError
from tests.conftest import TINY

FILE = """
from torch import nn
from mgcap.backbones import Backbone, Tapped, register

class Tiny(Tapped):
    def __init__(self, layer, activated):
        super().__init__()
        self.conv = nn.Conv2d(3, 12, 4, 4)

    def forward(self, x):
        return self.conv(x)

    def steps(self):
        return [("conv", self.conv)]

record = Backbone("NAME", "a tiny network", Tiny, {"conv": 12}, "conv")
"""


@pytest.fixture(autouse=True)
def _as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test registers is gone behind it."""
    known = dict(BACKBONES)
    monkeypatch.setattr(backbones, "_files", {})
    load_entry_points.cache_clear()
    yield
    BACKBONES.clear()
    BACKBONES.update(known)
    load_entry_points.cache_clear()


def _write(path: Path, name: str, last: str = "register(record)") -> Path:
    path.write_text(FILE.replace("NAME", name) + last + "\n")
    return path


def test_a_file_of_the_users_own(tmp_path: Path) -> None:
    path = _write(tmp_path / "mine.py", "mine")
    assert add_file(path) == ["mine"] and add_file(str(path)) == ["mine"]
    assert find_backbone("mine").width("conv") == 12
    images, labels = torch.rand(6, 3, 64, 64), list("aabbab")
    model = SceneClassifier(**TINY | {"backbone": "mine", "cache": False}).fit(images, labels)
    model.save(tmp_path / "m.mgcap")
    assert (SceneClassifier.load(tmp_path / "m.mgcap", engine="torch").predict(images) == model.predict(images)).all()
    del BACKBONES["mine"]
    with pytest.raises(
        BundleError, match=r"needs a backbone that is not installed; .*`mgcap.backbones.add_file`.*'mine'"
    ):
        SceneClassifier.load(tmp_path / "m.mgcap")


def test_an_edited_file_gets_features_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The weights are the same, and so is the name; features are kept in the cache."""
    path, images, found = tmp_path / "mine.py", torch.rand(4, 3, 64, 64), []
    for forward in ("self.conv(x)", "self.conv(x)", "self.conv(x).relu()"):
        _write(path, "mine")
        path.write_text(path.read_text().replace("self.conv(x)", forward))
        monkeypatch.setattr(backbones, "_files", {})
        BACKBONES.pop("mine", None)
        add_file(path)
        found.append(SceneClassifier(**TINY | {"backbone": "mine"}).fit(images, list("aabb")).transform(images))
    assert (found[0] == found[1]).all() and not (found[0] == found[2]).any()


def test_files_that_cannot_be_used(tmp_path: Path) -> None:
    with pytest.raises(MgcapError, match="there is no file"):
        add_file(tmp_path / "none.py")
    with pytest.raises(MgcapError, match=r"registers no backbone, .*; it should call mgcap\.backbones\.register"):
        add_file(_write(tmp_path / "a.py", "mine", ""))
    with pytest.raises(MgcapError, match=r"a\.py cannot be used: ZeroDivisionError"):
        add_file(_write(tmp_path / "a.py", "mine", "1 / 0"))
    with pytest.raises(MgcapError, match="there is a backbone 'vgg16' already"):
        add_file(_write(tmp_path / "a.py", "vgg16"))
    with pytest.raises(MgcapError, match="letters, digits"):
        add_file(_write(tmp_path / "a.py", "hf:mine"))
    (tmp_path / "a.txt").touch()
    with pytest.raises(MgcapError, match="is not a Python file"):
        add_file(tmp_path / "a.txt")
    assert "mine" not in BACKBONES


@pytest.mark.parametrize("last", ["found = record", "found = [record]", "found = lambda: [record]"])
def test_entry_points(last: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _write(tmp_path / "their_package.py", "theirs", last)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(__import__("sys").modules, "their_package", raising=False)
    points = [
        EntryPoint(name, f"{module}:found", own.GROUP) for name, module in (("bad", "no_such"), ("x", "their_package"))
    ]
    asked = []

    def entry_points(group: str) -> list[EntryPoint]:
        asked.append(group)
        return points

    monkeypatch.setattr(own, "entry_points", entry_points)
    assert find_backbone("vgg16") and not asked  # only where a name is unknown
    assert find_backbone("theirs").default_layer == "conv" and find_backbone("theirs")
    assert asked == [own.GROUP]
    with pytest.raises(ValueError, match=r"'other' is unknown.*; the entry point 'bad' cannot be used"):
        find_backbone("other")


def test_a_name_is_given_once() -> None:
    register(BACKBONES["vgg16"])
    with pytest.raises(ValueError, match="already"):
        register(find_backbone("timm:x").__class__("vgg16", "", BACKBONES["vgg16"].build, {}, ""))
