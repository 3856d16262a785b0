"""Peak memory of a forward pass against the number of rotations and images: it grows with the batch only.

    python benchmarks/memory.py --csv benchmarks/results/memory.csv
    python benchmarks/memory.py --step --csv benchmarks/results/memory-step.csv

With ``--step``: peak memory of whole training steps instead, VGG-16 with 3 granularities and 12 images, by the gradient
cache; the last is the paper's (432 views, three networks, all of them trained), optimiser included.

Each point runs in a process of its own, whose peak resident size is what the operating system says at its end, less
that of a process that only builds the model.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from common import write_rows

CHILD = """
import resource, sys, torch
from mgcap import MGCAP, MGCAPConfig
rotations, batch = int(sys.argv[1]), int(sys.argv[2])
model = MGCAP(MGCAPConfig(preset="paper", granularities=(1.0,), rotations=max(rotations, 1))).eval()
if rotations:
    with torch.inference_mode():
        model(torch.rand(batch, 3, 256, 256))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""

STEP = """
import resource, sys, time, torch
import torch.nn.functional as F
from mgcap import MGCAP, Finetune, MGCAPConfig
from mgcap.inference.engines.torch import keep_freed_memory
from mgcap.training.gradient_cache import SampledViews, Trunk, choose_chunk, gradient_step
rotations, batch = int(sys.argv[1]), int(sys.argv[2])
keep_freed_memory()
model = MGCAP(MGCAPConfig(preset="paper", rotations=max(rotations, 1))).eval()
optimiser = Finetune().make_optimiser(list(model.parameters()), model.head.weight, model.side)
trunk, targets = Trunk.of(model), torch.arange(batch)
chunk = choose_chunk(model, trunk)
begin = time.perf_counter()
if rotations:
    views = SampledViews(model, torch.rand(batch, 3, 256, 256), trunk)
    gradient_step(model, views, trunk, lambda logits: F.cross_entropy(logits, targets), chunk)
    optimiser.step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, time.perf_counter() - begin, chunk)
"""


def child(code: str, rotations: int, batch: int) -> list[float]:
    command = [sys.executable, "-c", code, str(rotations), str(batch)]
    return [float(part) for part in subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()]


def peak(rotations: int, batch: int) -> float:
    return child(CHILD, rotations, batch)[0]


def steps() -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for rotations in (1, 4, 12):
        size, seconds, chunk = child(STEP, rotations, 12)
        row = {"rotations": rotations, "views": 36 * rotations, "chunk": int(chunk)}
        rows.append(row | {"peak_mib": f"{size:.0f}", "seconds": f"{seconds:.0f}"})
        print(rows[-1], flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--step", action="store_true")
    parser.add_argument("--csv", type=Path)
    args = parser.parse_args()
    if args.step:
        write_rows(args.csv, steps())
        return
    base = peak(0, 1)
    rows = []
    for rotations, batch in ((1, 1), (12, 1), (1, 16), (2, 16), (4, 16), (12, 16), (12, 32)):
        extra = peak(rotations, batch) - base
        rows.append({"rotations": rotations, "batch": batch, "extra_mib": f"{extra:.0f}"})
        print(rows[-1], flush=True)
    write_rows(args.csv, rows)


if __name__ == "__main__":
    main()
