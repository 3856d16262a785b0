from __future__ import annotations

import io
import os
import signal
import stat
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest
from PIL import Image

from mgcap.data import archives
from mgcap.data.folders import open_folder
from mgcap.errors import DataError
from mgcap.persistence.files import cache_dir


def _png(shade: int = 0) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (16, 16), (shade, 0, 0)).save(buffer, "PNG")
    return buffer.getvalue()


def _archive(path: Path, *names: str) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for i, name in enumerate(names):
            archive.writestr(name, _png(i))
    return path


GOOD = ("x/1.png", "x/2.png", "y/1.png")


def _left() -> list[str]:
    """What the cache holds."""
    return sorted(p.name for p in (cache_dir() / "archives").iterdir())


@pytest.mark.parametrize("above", ["", "UCMerced_LandUse/Images/", "a/b/c/"])
def test_archives_as_people_download_them(tmp_path: Path, above: str) -> None:
    names = [above + name for name in GOOD]
    path = _archive(tmp_path / "Set.zip", *names, f"__MACOSX/{above}x/._1.png", f"{above}x/.DS_Store", "readme.txt")
    found = open_folder(path)
    assert found.counts == {"x": 2, "y": 1}
    assert [found.relative(p) for p in found.paths] == ["x/1.png", "x/2.png", "y/1.png"]
    assert [p.read_bytes() for p in found.paths] == [_png(0), _png(1), _png(2)]
    assert found.root.name == (above.split("/")[-2] if above else "Set")
    assert len(list(cache_dir().rglob("*.png"))) == 3 and not list(cache_dir().rglob("readme.txt"))
    assert found.root.stat().st_mode & 0o777 == tmp_path.stat().st_mode & 0o777 | 0o055


def test_an_archive_is_unpacked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = open_folder(_archive(tmp_path / "a.zip", *GOOD))
    monkeypatch.setattr(archives, "_unpack", lambda *a: pytest.fail("unpacked again"))
    assert open_folder(tmp_path / "a.zip") == first
    (tmp_path / "b.zip").write_bytes((tmp_path / "a.zip").read_bytes())
    assert open_folder(tmp_path / "b.zip").paths == first.paths
    assert len(_left()) == 1


@pytest.mark.parametrize("above", ["", "tiles/"])
def test_flat_archives(tmp_path: Path, above: str) -> None:
    path = _archive(tmp_path / "a.zip", *(above + n for n in ("river1.png", "river2.png", "lake_1.png", "lake_2.png")))
    assert open_folder(path).counts == {"lake": 2, "river": 2}


def test_names_of_other_programs(tmp_path: Path) -> None:
    """Slashes of Windows, and UTF-8 without a word about it."""
    content = _archive(tmp_path / "a.zip", "Waelder/1.png", "Seen/1.png").read_bytes()
    content = content.replace(b"Waelder/", "Wälder\\".encode()).replace(b"Seen/", b"Seen\\")
    (tmp_path / "a.zip").write_bytes(content)
    assert open_folder(tmp_path / "a.zip").classes == ("Seen", "Wälder")


@pytest.mark.parametrize("name", ["/etc/x.png", "../x.png", "a/../../x.png", "C:/x.png", "..\\x.png", "\\x.png"])
def test_nothing_is_written_elsewhere(tmp_path: Path, name: str) -> None:
    path = _archive(tmp_path / "a.zip", *GOOD, name)
    with pytest.raises(DataError, match="would lie outside of its folder"):
        open_folder(path)
    assert _left() == [] and [p.name for p in tmp_path.iterdir()] == ["a.zip"]


def test_links_are_refused(tmp_path: Path) -> None:
    path = _archive(tmp_path / "a.zip", *GOOD)
    with zipfile.ZipFile(path, "a") as archive:
        link = zipfile.ZipInfo("x/3.png")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(link, "/etc/passwd")
    with pytest.raises(DataError, match=r"has a link to another file: 'x/3\.png'"):
        open_folder(path)


def test_archives_that_are_not_whole(tmp_path: Path) -> None:
    whole = _archive(tmp_path / "a.zip", *GOOD).read_bytes()
    broken = tmp_path / "b.zip"
    for content in (whole[:-30], whole[: len(whole) // 2], b"", b"no archive", whole[:40] + b"\xff" * 9 + whole[49:]):
        broken.write_bytes(content)
        with pytest.raises(DataError, match="is not a whole zip archive"):
            open_folder(broken)
        assert _left() == []


def test_any_changed_byte_is_one_sentence(tmp_path: Path) -> None:
    whole = _archive(tmp_path / "a.zip", *GOOD).read_bytes()
    broken = tmp_path / "b.zip"
    for place in range(len(whole)):
        broken.write_bytes(whole[:place] + bytes([whole[place] ^ 0x41]) + whole[place + 1 :])
        try:
            open_folder(broken)
        except DataError:
            continue


def test_encrypted_archives(tmp_path: Path) -> None:
    content = bytearray(_archive(tmp_path / "a.zip", *GOOD).read_bytes())
    content[content.index(b"PK\x01\x02") + 8] |= 1
    (tmp_path / "a.zip").write_bytes(content)
    with pytest.raises(DataError, match="is encrypted; unpack it with its password"):
        open_folder(tmp_path / "a.zip")


def test_archives_have_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = _archive(tmp_path / "a.zip", *GOOD)
    for name, value, sentence in (
        ("MAX_MEMBERS", 2, "has 3 files; at most 2 are unpacked"),
        ("MAX_BYTES", 100, "at most 0 GB are unpacked"),
    ):
        with monkeypatch.context() as patched, pytest.raises(DataError, match=sentence):
            patched.setattr(archives, name, value)
            open_folder(path)
    with monkeypatch.context() as patched, pytest.raises(DataError, match=r"0\.0 GB left in .*MGCAP_HOME"):
        patched.setattr("shutil.disk_usage", lambda path: os.terminal_size((0, 0)) and type("", (), {"free": 10})())
        open_folder(path)
    assert _left() == []


def test_a_member_that_claims_less_than_it_is(tmp_path: Path) -> None:
    """Its claim is what counts: nothing more is written."""
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x/1.png", _png())
        archive.writestr("y/1.png", bytes(1_000_000))
    content = bytearray((tmp_path / "a.zip").read_bytes())
    for start in (b"PK\x01\x02", b"PK\x03\x04"):
        place = content.rindex(start) + (24 if start[2] == 1 else 22)
        assert int.from_bytes(content[place : place + 4], "little") == 1_000_000
        content[place : place + 4] = (500).to_bytes(4, "little")
    (tmp_path / "a.zip").write_bytes(content)
    with pytest.raises(DataError, match="is not a whole zip archive"):
        open_folder(tmp_path / "a.zip")
    assert _left() == []


def test_files_of_one_name_and_none(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="Duplicate name"):
        _archive(tmp_path / "a.zip", *GOOD, "x/1.png")
    with pytest.raises(DataError, match="two files of the name"):
        open_folder(tmp_path / "a.zip")
    with pytest.raises(DataError, match="two files of the name"):
        open_folder(_archive(tmp_path / "b.zip", "x.png", "x.png/1.png"))
    with pytest.raises(DataError, match="has no images"):
        open_folder(_archive(tmp_path / "c.zip", "readme.txt"))
    with pytest.raises(DataError, match=r"d\.zip has only the class 'x'"):
        open_folder(_archive(tmp_path / "d.zip", "x/1.png"))
    with pytest.raises(DataError, match="there is no file"):
        open_folder(tmp_path / "e.zip")
    assert _left() != [] and not any(name.startswith(".") for name in _left())


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_a_killed_run_leaves_nothing_that_is_used(tmp_path: Path) -> None:
    names = [f"{name}/{i}.png" for name in "xy" for i in range(200)]
    path = _archive(tmp_path / "a.zip", *names)
    slow = (
        "import time, sys\nfrom mgcap.data import archives\nfrom mgcap.data.folders import open_folder\n"
        "copy = archives._copy\n"
        "archives._copy = lambda *a: (copy(*a), time.sleep(0.05))\n"
        "open_folder(sys.argv[1])"
    )
    child = subprocess.Popen([sys.executable, "-c", slow, str(path)])
    folder = cache_dir() / "archives"
    deadline = time.monotonic() + 60
    while len(list(folder.glob(".*.partial/a/x/*.png"))) < 3 and time.monotonic() < deadline:
        time.sleep(0.02)
    child.send_signal(signal.SIGKILL)
    child.wait()
    assert [name for name in _left() if name.endswith(".partial")] and not list(folder.glob("[!.]*"))
    found = open_folder(path)
    assert len(found) == 400 and not any(name.startswith(".") for name in _left())
