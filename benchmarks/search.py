"""How long a search takes once an index is open, and what the approximate index finds of the exact answer.

python benchmarks/search.py --csv benchmarks/results/search.csv

Vectors are drawn: points around 2,000 centres, as places of a landscape are of kinds. Queries are such points, too.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from mgcap.geo import nearest
from mgcap.geo.blocks import Cells, IndexPlan
from mgcap.geo.index import FORMAT, About, Index, create_index
from mgcap.persistence.files import write_rows

parser = argparse.ArgumentParser()
parser.add_argument("--cells", type=int, nargs="+", default=[100_000, 1_000_000, 2_000_000])
parser.add_argument("--length", type=int, nargs="+", default=[256, 512])
parser.add_argument("--queries", type=int, default=20)
parser.add_argument("--csv", type=Path)
args = parser.parse_args()

VIEWS, TOP, CENTRES = 6, 50, 2000


def draw(path: Path, cells: int, length: int) -> tuple[Index, torch.Tensor]:
    side = round(cells**0.5)
    plan = IndexPlan(
        raster="none.tif", size=(64 * side, 64 * side), changed=(0, 0), cell=(64, 64), cells_in_tile=4,
        shape=(256, 256), bands=(1, 2, 3), black=0, white=255, min_valid=0.5, model="", model_fingerprint="",
        engine="none", chunk=64, block=80, dense=True,
    )  # fmt: skip
    transform = (19.2, 0.0, 0.0, 0.0, -19.2, 0.0)
    about = About(
        format=FORMAT, plan=plan, descriptor="drawn", projection="", angles=(0.0,), crs="", transform=transform
    )
    index = create_index(path, about, length)
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(CENTRES, length)).astype(np.float32)
    for chunk in range(plan.chunks):
        rows, columns = (part.stop - part.start for part in plan.cells(chunk))
        kinds = rng.integers(0, CENTRES, (rows, columns))
        vectors = centres[kinds] + rng.normal(size=(rows, columns, length)).astype(np.float32)
        ones = np.ones((rows, columns))
        index.write(chunk, Cells(vectors.astype(np.float16), ones.astype(np.uint16) - 1, ones.astype(np.uint8)))
    kinds = rng.integers(0, CENTRES, args.queries)[:, None]
    queries = centres[kinds] + rng.normal(size=(args.queries, VIEWS, length))
    return index, torch.from_numpy(queries.astype(np.float32))


def measured(gallery: nearest.Gallery, queries: torch.Tensor) -> tuple[float, float, list[set[tuple[int, int]]]]:
    start = time.perf_counter()
    gallery.best(queries[0], TOP)
    first, times, found = time.perf_counter() - start, [], []
    for query in queries:
        start = time.perf_counter()
        hits = gallery.best(query, TOP)
        times.append(1000 * (time.perf_counter() - start))
        found.append({(hit.row, hit.column) for hit in hits})
    return first, statistics.median(times), found


rows = []
with tempfile.TemporaryDirectory() as folder:
    for cells in args.cells:
        for length in args.length:
            index, queries = draw(Path(folder) / f"{cells}-{length}.zarr", cells, length)
            nearest.EXACT_CELLS = 1 << 40
            opened, milliseconds, exact = measured(nearest.Gallery.open([index]), queries)
            ways = [("exact", opened, milliseconds, 1.0)]
            if cells > 1_000_000:
                nearest.EXACT_CELLS = 1_000_000
                made, milliseconds, found = measured(nearest.Gallery.open([index]), queries)
                recall = float(np.mean([len(a & b) / len(a) for a, b in zip(exact, found, strict=True)]))
                ways.append(("faiss, made", made, milliseconds, recall))
                opened, milliseconds, _ = measured(nearest.Gallery.open([index]), queries)
                ways.append(("faiss, kept", opened, milliseconds, recall))
            for way, first, each, recall in ways:
                peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
                rows.append(
                    {
                        "cells": cells, "length": length, "search": way, "first_s": f"{first:.2f}",
                        "next_ms": f"{each:.1f}", "found_of_exact": f"{recall:.3f}", "peak_memory_gb": f"{peak:.2f}",
                    }
                )  # fmt: skip
                print(rows[-1], flush=True)
if args.csv:
    write_rows(args.csv, rows)
