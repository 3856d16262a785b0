"""What papers report for the catalogued datasets, to stand beside our own figures.

The rows are those of the tables of Wang, Guan and Shao (2020), which cite the sources named in them, and the
frozen features of Xia et al. (2017). Means and standard deviations in percent.
"""

from __future__ import annotations

import csv
import importlib.resources
from collections.abc import Iterable
from typing import Any

from mgcap.data.catalogue import recognise
from mgcap.report.page import spread

#: Training shares that differ by less are the same setting.
SAME_RATIO = 0.01


def published_rows(dataset: str, train_ratio: float) -> list[dict[str, str]]:
    """Published results on a dataset at a training ratio, in the order of the tables."""
    text = importlib.resources.files("mgcap.report").joinpath("published.csv").read_text(encoding="utf-8")
    rows = csv.DictReader(text.splitlines())
    return [r for r in rows if r["dataset"] == dataset and abs(float(r["train_ratio"]) - train_ratio) < SAME_RATIO]


def published_table(classes: Iterable[str], train_ratio: float, own: Iterable[dict[str, Any]]) -> dict[str, Any] | None:
    """The published results with our own among them, by rising accuracy; None where nothing was published.

    Args:
        classes: Names, by which the dataset is recognised.
        train_ratio: Share of the images that were trained on.
        own: Our rows, each with ``method``, ``mean`` and ``std``.

    Returns:
        A table for :class:`mgcap.report.page.Page`.
    """
    dataset = recognise(classes)
    found = published_rows(dataset.key, train_ratio) if dataset else []
    if dataset is None or not found:
        return None
    rows: list[tuple[float, bool, tuple[str, str, str]]] = []
    for r in found:
        mean, std = float(r["accuracy"]), float(r["std"]) if r["std"] else None
        rows.append((mean, False, (f"{r['method']} ({r['kind']})", spread(mean, std), r["source"])))
    rows += [(r["mean"], True, (r["method"], spread(r["mean"], r["std"]), "this run")) for r in own]
    rows.sort(key=lambda row: row[0])
    return {
        "title": f"{dataset.title}, {100 * train_ratio:.0f} % for training: what papers report",
        "columns": ("method", "accuracy, %", "source"),
        "rows": [row for _, _, row in rows],
        "ours": [number for number, (_, ours, _) in enumerate(rows) if ours],
    }
