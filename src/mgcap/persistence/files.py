"""Where files are kept, and how they are written: whole or not at all."""

from __future__ import annotations

import csv
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mgcap.errors import DataError


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


@contextmanager
def atomic_folder(target: Path) -> Iterator[Path]:
    """A temporary folder beside ``target`` that takes its place if the block ends well, and vanishes otherwise.

    Raises:
        DataError: If there is a file of this name, or a folder that is not empty.
    """
    target = target.expanduser().resolve()
    if target.exists() and not target.is_dir():
        raise DataError(f"{target} is a file, not a folder")
    if target.is_dir() and any(target.iterdir()):
        raise DataError(f"the folder {target} is not empty; give another one")
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        yield temporary
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o777 & ~umask)
        if target.is_dir():
            target.rmdir()
        temporary.replace(target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def write_json(path: Path, value: Any) -> None:
    """Write a value as indented JSON."""
    with atomic_path(path) as temporary:
        temporary.write_text(json.dumps(value, indent=1) + "\n")


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows of equal columns as CSV."""
    with atomic_path(path) as temporary, temporary.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]) if rows else [])
        writer.writeheader()
        writer.writerows(rows)
