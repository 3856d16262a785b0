"""Small indexes, and models for them whose windows see nothing but their own pixels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from mgcap.classifier import SceneClassifier
from mgcap.data.folders import open_folder
from mgcap.geo.blocks import Cells, IndexPlan
from mgcap.geo.index import FORMAT, About
from mgcap.runtime import Progress
from tests.conftest import TINY

#: With a network that has one position for 8 x 8 pixels, see :class:`tests.inference.plain.Patches`.
PATCHES = {
    **TINY, "backbone": "patches", "layer": "last", "reduction": "none", "channels": None, "rotations": 4,
    "field_of_view": 1.0, "resolution": 0.5, "cache": False,
}  # fmt: skip


def patches_file(path: Path, scenes: Path, classes: int = 4) -> Path:
    """A model of patches for some of the classes; it learns nothing but its head."""
    folder = open_folder(scenes)
    known = [(file, label) for file, label in zip(folder.paths, folder.labels, strict=True)
             if label in folder.classes[:classes]]  # fmt: skip
    SceneClassifier(**PATCHES).fit(*(list(own) for own in zip(*known, strict=True))).save(path)
    return path


def plan_of(rows: int, columns: int, **given: Any) -> IndexPlan:
    """Of cells of 10 x 10 pixels, 2 x 2 in a tile, in blocks of 7 x 7."""
    values = {
        "raster": "/nowhere/scene.tif", "size": (10 * columns, 10 * rows), "changed": (0, 1), "cell": (10, 10),
        "cells_in_tile": 2, "shape": (20, 20), "bands": (1, 2, 3), "black": 0, "white": 255, "min_valid": 0.5,
        "model": "", "model_fingerprint": "", "engine": "torch", "chunk": 64, "block": 7, "dense": True,
    }  # fmt: skip
    return IndexPlan(**{**values, **given})


def about_of(plan: IndexPlan, **given: Any) -> About:
    """What an index of a plan says of itself."""
    values = {
        "format": FORMAT, "plan": plan, "descriptor": "d", "projection": "", "angles": (0, 90), "crs": "",
        "transform": (plan.cell[0], 0, 0, 0, -plan.cell[1], 0),
    }  # fmt: skip
    return About(**{**values, **given})


def cells_of(plan: IndexPlan, chunk: int, length: int = 5) -> Cells:
    """Cells of a block that differ from those of all others; every third has no data."""
    rows, columns = (np.arange(own.start, own.stop) for own in plan.cells(chunk))
    numbers = rows[:, None] * plan.grid.columns + columns
    valid = np.where(numbers % 3 == 0, 0, 1 + numbers % 255).astype(np.uint8)
    vectors = np.where(valid[..., None] > 0, numbers[..., None] + np.arange(length) / 8, 0).astype(np.float16)
    return Cells(vectors, (numbers % 2).astype(np.uint16), valid)


class Lines(Progress):
    """Keeps what is said."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, line: str) -> None:
        self.lines.append(line)
