"""Whether a rotated query finds the same places, and by which likeness.

python benchmarks/search_rotation.py kitsap.tif kitsap.zarr --csv benchmarks/results/search-rotation.csv

Tiles around random cells are cut upright, and once more rotated by 37 degrees with their real surroundings. Both are
searched for. A hit is the same if the middles of tiles are at most half a tile apart. Where the model is sure of the
class of the cell (p > 0.9), the share of the next 20 hits of that class is counted, too.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch

from mgcap.classifier import SceneClassifier
from mgcap.geo.heads import classify_index
from mgcap.geo.nearest import Gallery, Near
from mgcap.geo.opening import open_raster
from mgcap.geo.raster import read_window
from mgcap.geo.search import views_of
from mgcap.persistence.files import write_rows
from mgcap.typing import Array
from mgcap.views import sample_frames

parser = argparse.ArgumentParser()
parser.add_argument("raster", type=Path)
parser.add_argument("index", type=Path)
parser.add_argument("--angle", type=float, default=37.0)
parser.add_argument("--cells", type=int, default=32)
parser.add_argument("--csv", type=Path)
args = parser.parse_args()

TOP = 50
classifier = SceneClassifier.load("ucmerced")
index = Gallery.open([args.index]).indexes[0]
plan = index.plan
half = plan.cells_in_tile // 2
tile = plan.tile[0]
shown = classify_index(classifier.model_, index, plan)
rng = np.random.default_rng(0)
margin = plan.cells_in_tile
cells = [
    tuple(map(int, rng.integers(margin, (plan.grid.rows - margin, plan.grid.columns - margin))))
    for _ in range(args.cells)
]


def cut(row: int, column: int, angle: float) -> Array:
    x, y = (int((n + 0.5) * side) for n, side in zip((column, row), plan.cell, strict=True))
    with open_raster(args.raster) as dataset:
        wide = read_window(
            dataset, plan.look, x - 3 * tile // 4, y - 3 * tile // 4, 3 * tile // 2, 3 * tile // 2, (3 * tile // 2,) * 2
        )[0]
    frames = sample_frames(torch.from_numpy(wide).permute(2, 0, 1)[None], [angle], plan.shape[0], 2 / 3)
    return (255 * frames[0, 0].permute(1, 2, 0).clamp(0, 1)).round().numpy() / 255


def gallery(likeness: str) -> Gallery:
    made = Gallery.open([args.index])
    if likeness == "centred":
        vectors = torch.cat([torch.from_numpy(own.vectors[own.valid > 0]).float() for _, own in index.blocks()])
        made.__dict__["mean"] = -vectors.mean(0)
    return made


def near(hits: list[Near], place: tuple[int, int]) -> bool:
    return any(max(abs(hit.row - place[0]), abs(hit.column - place[1])) <= half for hit in hits)


def overlap(one: list[Near], other: list[Near], count: int) -> float:
    return float(np.mean([near(other[:count], (hit.row, hit.column)) for hit in one[:count]]))


views = {angle: [views_of(classifier, cut(*cell, angle)) for cell in cells] for angle in (0.0, args.angle)}
rows = []
for likeness in ("cosine", "centred"):
    own = gallery(likeness)
    for count in (1, 2, 6):
        step = len(views[0.0][0]) // count
        upright, rotated = ([own.best(v[::step], TOP) for v in views[angle]] for angle in (0.0, args.angle))
        pairs = list(zip(cells, rotated, strict=True))
        same = [
            np.mean([shown.classes[hit.row, hit.column] == shown.classes[cell] for hit in hits[1:21]])
            for cell, hits in pairs
            if shown.probability[cell] > 0.9
        ]
        both = list(zip(upright, rotated, strict=True))
        rows.append(
            {
                "likeness": likeness, "views": count,
                "place_first": f"{np.mean([near(hits[:1], cell) for cell, hits in pairs]):.2f}",
                "place_in_10": f"{np.mean([near(hits[:10], cell) for cell, hits in pairs]):.2f}",
                "same_of_10": f"{np.mean([overlap(a, b, 10) for a, b in both]):.3f}",
                "same_of_50": f"{np.mean([overlap(a, b, 50) for a, b in both]):.3f}",
                "class_of_20": f"{np.mean(same):.3f}", "cells": len(cells), "sure_cells": len(same),
            }
        )  # fmt: skip
        print(rows[-1], flush=True)
if args.csv:
    write_rows(args.csv, rows)
