"""Studies that go on where they stopped: what marks one, and whether a folder holds the same."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mgcap.data.folders import SceneFolder
from mgcap.data.splits import Split
from mgcap.errors import DataError


def data_marks(folder: SceneFolder, splits: Sequence[Split]) -> dict[str, str]:
    """Marks of images and splits."""
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


def check_identity(file: Path, identity: dict[str, Any], what: str) -> None:
    """See that a folder holds the same study, or none.

    Args:
        file: Holds the identity of the study in that folder.
        identity: Of the study that wants to go on there.
        what: What the study is called.

    Raises:
        DataError: If it is another one.
    """
    if not file.exists():
        return
    try:
        kept = json.loads(file.read_text())["identity"]
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{file} cannot be read; remove it, or give another --out") from error
    if kept != identity:
        changed = ", ".join(key for key in identity if kept.get(key) != identity[key])
        raise DataError(f"{file.parent} holds a {what} with other {changed}; give another --out")
