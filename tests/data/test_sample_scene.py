from __future__ import annotations

import hashlib
import io
import tarfile
from pathlib import Path

import pytest

from mgcap.data import sample_scene as module
from mgcap.errors import WeightsError


class Archive:
    """Stands in for the download."""

    def __init__(self, name: str, content: bytes) -> None:
        self.name, self.content, self.asked = name, content, 0

    def __str__(self) -> str:
        return "a stand-in"

    def download(self, folder: Path) -> Path:
        self.asked += 1
        path = folder / "a.tar.gz"
        with tarfile.open(path, "w:gz") as tar:
            info = tarfile.TarInfo(self.name)
            info.size = len(self.content)
            tar.addfile(info, io.BytesIO(self.content))
        return path


def test_it_is_fetched_once_and_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    archive = Archive("x/tests/RGB5k.tif", b"pixels")
    monkeypatch.setattr(module, "SOURCE", archive)
    monkeypatch.setattr(module, "SHA256", hashlib.sha256(b"pixels").hexdigest())
    assert module.sample_scene().read_bytes() == b"pixels"
    assert module.sample_scene().read_bytes() == b"pixels"
    assert archive.asked == 1
    module.sample_scene().write_bytes(b"altered")
    assert module.sample_scene().read_bytes() == b"pixels"
    assert archive.asked == 2


@pytest.mark.parametrize(("name", "words"), [("x/RGB5k.tif", "not the file that was pinned"), ("x/other", "holds no")])
def test_other_content_is_refused(monkeypatch: pytest.MonkeyPatch, name: str, words: str) -> None:
    monkeypatch.setattr(module, "SOURCE", Archive(name, b"other"))
    with pytest.raises(WeightsError, match=words):
        module.sample_scene()
