from __future__ import annotations

import io
import tarfile
import zipfile
from pathlib import Path

import pytest

from mgcap.errors import WeightsError
from mgcap.persistence import archives


def _archive(path: Path, sizes: dict[str, int]) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, size in sizes.items():
            info = tarfile.TarInfo(name)
            info.size = size
            archive.addfile(info, io.BytesIO(bytes(size)))
    return path


def test_only_what_is_wanted_is_read(tmp_path: Path) -> None:
    path = _archive(tmp_path / "a.tar.gz", {"x/a": 3, "x/b": 5, "y/a": 7})
    assert archives.read_members(path, lambda name: name.endswith("/a")) == {"x/a": bytes(3), "y/a": bytes(7)}


@pytest.mark.parametrize("sizes", [{"a": 10_001}, {"a": 5000, "b": 5001}, {"other": 20_000, "a": 1}])
def test_a_bomb_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sizes: dict[str, int]) -> None:
    path = _archive(tmp_path / "a.tar.gz", sizes)
    assert path.stat().st_size < 1000
    monkeypatch.setattr(archives, "MAX_UNPACKED_BYTES", 10_000)
    read: list[int] = []
    extract = tarfile.TarFile.extractfile

    def noted(self: tarfile.TarFile, member: tarfile.TarInfo) -> object:
        read.append(member.size)
        return extract(self, member)

    monkeypatch.setattr(tarfile.TarFile, "extractfile", noted)
    with pytest.raises(WeightsError, match="unpacks to more than 10000 bytes"):
        archives.read_members(path, lambda name: name in "ab")
    assert sum(read) <= 10_000


def test_a_broken_archive_is_one_sentence(tmp_path: Path) -> None:
    path = _archive(tmp_path / "a.tar.gz", {"a": 100_000})
    whole = path.read_bytes()
    for content in (b"", b"nothing like it", whole[: len(whole) // 2], whole[:20] + b"\xff" * 20 + whole[40:]):
        path.write_bytes(content)
        with pytest.raises(WeightsError, match="not a readable archive"):
            archives.read_members(path, lambda name: True)


def test_zip_archives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with zipfile.ZipFile(tmp_path / "a.whl", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a/one", b"1" * 1000)
        archive.writestr("two", b"2")
    assert archives.read_zip(tmp_path / "a.whl", "a.whl", lambda name: name == "two") == {"two": b"2"}
    data = (tmp_path / "a.whl").read_bytes()
    assert archives.read_zip(io.BytesIO(data), "x", lambda name: "/" in name) == {"a/one": b"1" * 1000}
    for broken in (b"", b"nothing", data[:-30], data[:37] + bytes([data[37] ^ 255]) + data[38:]):
        with pytest.raises(WeightsError, match="x is not a readable archive"):
            archives.read_zip(io.BytesIO(broken), "x", bool)
    monkeypatch.setattr(archives, "MAX_UNPACKED_BYTES", 1000)
    with pytest.raises(WeightsError, match="unpacks to more than 1000 bytes"):
        archives.read_zip(tmp_path / "a.whl", "a.whl", bool)
