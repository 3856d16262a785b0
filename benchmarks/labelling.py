"""What suggestions are worth: a person labels cells of a raster, by chance or as they are suggested; and refits' time.

python benchmarks/labelling.py kitsap.tif --index kitsap.zarr --csv benchmarks/results/labelling.csv \
    --times benchmarks/results/labelling-times.csv

Classes are made from the pixels of each tile, never from descriptors: three kinds of ground by how much of it is bare,
how much of it edges that are not vegetation, how much of it bright. Cells lie side by side (every cell is a tile), or
are all of a dense index; accuracies are those of all cells that were not labelled. The index is made by
``mgcap index kitsap.tif`` with the shipped model.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import rasterio
import torch
from common import write_rows
from scipy import ndimage

from mgcap.geo.index import Index, open_index
from mgcap.labelling.learner import Learner
from mgcap.labelling.pool import Pool, open_pool
from mgcap.labelling.suggestions import MODES, suggest
from mgcap.typing import Array

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("raster", type=Path)
parser.add_argument("--index", type=Path, required=True)
parser.add_argument("--seeds", type=int, default=10)
parser.add_argument("--labels", type=int, nargs="+", default=[30, 60, 120])
parser.add_argument("--csv", type=Path)
parser.add_argument("--times", type=Path)
args = parser.parse_args()


def truths(raster: Path, index: Index, cells: Array) -> Iterator[tuple[str, Array]]:
    """Names of surrogates and the share of the tile of each cell that is of the kind."""
    tile, (columns, rows) = index.plan.tile[0], index.plan.cell
    with rasterio.open(raster) as file:
        red, green, blue = file.read([1, 2, 3]).astype(np.float32)
    total = red + green + blue
    vegetation = (2 * green - red - blue) / np.maximum(total, 1) > 0.05
    light = total / 3
    masks = {
        "bare": ~vegetation & (light >= 60),
        "edges": ~vegetation & (ndimage.gaussian_gradient_magnitude(light, 1.5) > 12),
        "bright": ~vegetation & (light > 150),
    }
    places = (cells[:, [2, 1]] + 0.5) * (columns, rows)
    middles = places.clip(tile / 2, np.array(light.shape[::-1]) - tile / 2).round().astype(int)
    (left, top), (right, low) = (middles - tile // 2).T, (middles + tile // 2).T
    for name, mask in masks.items():
        sums = np.pad(mask.astype(np.int64).cumsum(0).cumsum(1), ((1, 0), (1, 0)))
        yield name, (sums[low, right] - sums[top, right] - sums[low, left] + sums[top, left]) / tile**2


def part(pool: Pool, cells: Array) -> Pool:
    """Some cells of a pool."""
    return Pool(pool.vectors[torch.from_numpy(cells)], pool.cells[cells], pool.places[cells], pool.tile, pool.mean)


def side_by_side(index: Index, pool: Pool) -> Array:
    """Cells whose tiles cover the raster without overlap."""
    k, plan = index.plan.cells_in_tile, index.plan
    column, row = (pool.cells[:, axis] - k // 2 for axis in (2, 1))
    inside = (column < plan.grid.columns - k) & (row < plan.grid.rows - k)
    return np.flatnonzero((column % k == 0) & (row % k == 0) & inside & (column >= 0) & (row >= 0))


def labelled(pool: Pool, truth: Array, way: str, together: int, seed: int) -> Iterator[dict[str, Any]]:
    """Accuracies of the other cells after some numbers of labels."""
    rng = np.random.default_rng(seed)
    learner, labels, learned = Learner(pool, seed=seed), {}, None
    order = rng.permutation(len(pool))
    while True:
        if way != "random" or len(labels) in args.labels:
            learned = learner.fit(labels)
        if len(labels) in args.labels and learned is not None:
            others = np.ones(len(pool), bool)
            others[list(labels)] = False
            right = (learned.classes_of_cells == truth)[others]
            said = learned.estimate.value if learned.estimate is not None else float("nan")
            yield {"labels": len(labels), "accuracy": float(right.mean()), "estimate": said}
        if len(labels) >= max(args.labels):
            return
        if way == "random":
            chosen = order[len(labels) : len(labels) + 10].tolist()
        else:
            several = 10 if not labels else together
            chosen = [found.cell for found in suggest(pool, learned, labels, way, several, seed=seed)]
        labels.update({cell: int(truth[cell]) for cell in chosen})


def compare(pools: dict[str, tuple[Pool, Array]], shares: dict[str, Array]) -> list[dict[str, Any]]:
    """Rows of accuracies in percent, means over the seeds."""
    rows: list[dict[str, Any]] = []
    for kind, (pool, cells) in pools.items():
        for name, share in shares.items():
            truth = np.digitize(share[cells], np.quantile(share[cells], (1 / 3, 2 / 3)))
            for way, together in (("random", 10), ("teach", 10), ("teach", 1))[: 3 if len(pool) < 1000 else 2]:
                found: dict[int, list[dict[str, Any]]] = {}
                for seed in range(args.seeds):
                    for point in labelled(pool, truth, way, together, seed):
                        found.setdefault(point["labels"], []).append(point)
                for labels, points in found.items():
                    accuracies, said = ([100 * p[key] for p in points] for key in ("accuracy", "estimate"))
                    rows.append(
                        {
                            "cells": kind, "classes_by": name, "choice": way, "together": together, "labels": labels,
                            "accuracy": f"{statistics.mean(accuracies):.1f}",
                            "deviation": f"{statistics.pstdev(accuracies):.1f}",
                            "estimate": f"{statistics.mean(said):.1f}",
                        }
                    )  # fmt: skip
                    print(rows[-1], flush=True)
    return rows


def many(pool: Pool, count: int) -> Pool:
    """A pool of so many cells: those of one, with a little noise, on land of their own."""
    times = -(-count // len(pool))
    noise = torch.Generator().manual_seed(0)
    vectors = pool.vectors.repeat(times, 1)[:count]
    scale = 0.05 * float(vectors[: len(pool)].float().std())
    vectors = torch.cat(
        [(v.float() + scale * torch.randn(v.shape, generator=noise)).half() for v in vectors.split(4096)]
    )  # type: ignore[no-untyped-call]
    moved = np.ptp(pool.places[:, 0]) + 2 * pool.tile
    places = np.concatenate([pool.places + np.array((moved * number, 0)) for number in range(times)])[:count]
    cells = np.concatenate([pool.cells + np.array((number, 0, 0)) for number in range(times)])[:count]
    return Pool(vectors, cells, places, pool.tile, pool.mean)


def measure(pool: Pool, share: Array, labels: int, classes: int) -> dict[str, Any]:
    """Seconds for the first fit, for one more label, for one that is taken back, and for suggestions."""
    truth = np.digitize(share, np.quantile(share, np.arange(1, classes) / classes))
    order = np.random.default_rng(0).permutation(len(pool))
    given = {int(cell): int(truth[cell]) for cell in order[:labels]}
    row: dict[str, Any] = {"cells": len(pool), "labels": labels, "classes": classes}

    def clock(name: str, function: Any) -> Any:
        began, before = time.perf_counter(), time.process_time()
        done = function()
        row.setdefault(name, []).append(time.perf_counter() - began)
        if name == "next":  # of all cores together: what it takes however busy the machine is
            row.setdefault("next_cpu", []).append(time.process_time() - before)
        return done

    learner = Learner(pool)
    clock("first", lambda: learner.fit(given))
    last = next(reversed(given))
    for _ in range(5):
        kept = given.pop(last)
        learned = clock("taken_back", lambda: learner.fit(given))
        given[last] = kept
        learned = clock("next", lambda: learner.fit(given))
        for mode in MODES:
            clock(mode, partial(suggest, pool, learned, given, mode))
    return {key: f"{statistics.median(value):.3f}" if isinstance(value, list) else value for key, value in row.items()}


index = open_index(args.index)
whole = open_pool([index])
shares = dict(truths(args.raster, index, whole.cells))
own = side_by_side(index, whole)
if args.times:
    large = many(whole, 70_000)
    share = np.tile(shares["bare"], -(-len(large) // len(whole)))[: len(large)]
    times = [measure(part(whole, own), shares["bare"][own], *given) for given in ((120, 3), (len(own), 3), (120, 10))]
    times += [measure(large, share, *given) for given in ((120, 3), (500, 3), (500, 10))]
    for row in times:
        print(row, flush=True)
    write_rows(args.times, times)
every = np.arange(len(whole))
rows = compare({"side by side": (part(whole, own), own), "dense": (whole, every)}, shares)
if args.csv:
    write_rows(args.csv, rows)
