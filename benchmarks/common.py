"""What the benchmarks share."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any


def write_rows(path: Path | None, rows: list[dict[str, Any]]) -> None:
    """Write rows as CSV, if a path was given."""
    if path is None:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
