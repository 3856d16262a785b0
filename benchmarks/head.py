"""Ten heads, one for each split, on descriptors of the paper's length: time and peak memory.

    python benchmarks/head.py --csv benchmarks/results/head.csv

By default the descriptors are drawn (21 classes x 100, a spectrum that falls like that of real ones); ``--descriptors``
takes a .npy of [n, d] real ones with equally many images of each class, in order. They lie on disk in both cases.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from common import write_rows

from mgcap.bench.speed import peak_memory_mib
from mgcap.training.softmax import HeadSolver


def draw(path: Path, images: int, length: int, classes: int) -> None:
    rng = np.random.default_rng(0)
    rows = np.lib.format.open_memmap(path, "w+", np.float32, (images, length))
    strength = np.arange(1, images + 1) ** -0.7
    scores = rng.standard_normal((images, images)) * strength
    scores += np.repeat(rng.standard_normal((classes, images)) * strength, images // classes, axis=0)
    for start in range(0, length, 4096):
        part = scores @ rng.standard_normal((images, min(4096, length - start)))
        rows[:, start : start + 4096] = part / length**0.5
    rows.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--descriptors", type=Path)
    parser.add_argument("--images", type=int, default=2100)
    parser.add_argument("--length", type=int, default=131841)
    parser.add_argument("--classes", type=int, default=21)
    parser.add_argument("--csv", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = args.descriptors
        if path is None:
            path = Path(folder) / "drawn.npy"
            draw(path, args.images, args.length, args.classes)
        rows = torch.from_numpy(np.load(path, mmap_mode="c"))
        each = len(rows) // args.classes
        targets = np.repeat(np.arange(args.classes), each)
        start = time.perf_counter()
        solver = HeadSolver(rows, targets.tolist(), args.classes)
        gram = time.perf_counter() - start
        right = []
        for seed in range(10):
            rng = np.random.default_rng(seed)
            train = np.concatenate([rng.permutation(each)[: each * 4 // 5] + each * c for c in range(args.classes)])
            test = np.setdiff1d(np.arange(len(rows)), train)
            solution = solver.solve(train.tolist(), seed=seed)
            right.append(float((solver.logits(solution, test.tolist()).argmax(1).numpy() == targets[test]).mean()))
        total = time.perf_counter() - start
    row = {
        "images": len(rows),
        "length": rows.shape[1],
        "splits": 10,
        "seconds_gram_and_rotation": f"{gram:.1f}",
        "seconds_in_all": f"{total:.1f}",
        "peak_memory_mib": peak_memory_mib(),
        "accuracy": f"{100 * np.mean(right):.2f}",
    }
    print(row)
    write_rows(args.csv, [row])


if __name__ == "__main__":
    main()
