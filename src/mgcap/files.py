"""Small files of results, written whole or not at all."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mgcap.assets import atomic_path


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
