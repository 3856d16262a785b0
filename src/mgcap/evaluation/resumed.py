"""Resuming studies: the fingerprint of one, and whether a folder holds the same."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mgcap.data.folders import SceneFolder
from mgcap.data.splits import Split
from mgcap.errors import DataError


def data_fingerprints(folder: SceneFolder, splits: Sequence[Split]) -> dict[str, str]:
    """Fingerprints of images and splits."""
    files = [(folder.relative(path), path.stat().st_size) for path in folder.paths]
    return {
        "images": hashlib.sha256(repr(files).encode()).hexdigest(),
        "splits": hashlib.sha256(repr([(s.train, s.test) for s in splits]).encode()).hexdigest(),
    }


def read_run(path: Path) -> dict[str, Any] | None:
    """A run that is done; None if it is not, or its file is damaged."""
    try:
        run: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return run


def check_fingerprint(file: Path, fingerprint: dict[str, Any], what: str) -> None:
    """See that a folder holds the same study, or none.

    Args:
        file: Holds the fingerprint of the study in that folder, in the field ``fingerprint``.
        fingerprint: Of the study that is to be resumed there.
        what: What the study is called.

    Raises:
        DataError: If it is another one.
    """
    if not file.exists():
        return
    try:
        values = json.loads(file.read_text())
        kept = values["fingerprint"] if "fingerprint" in values else values["identity"]  # as earlier versions called it
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{file} cannot be read; remove it, or give another `out`") from error
    if kept != fingerprint:
        changed = ", ".join(key for key in {**kept, **fingerprint} if kept.get(key) != fingerprint.get(key))
        raise DataError(f"{file.parent} holds a {what} with other {changed}; give another `out`")
