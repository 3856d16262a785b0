"""Peak memory of a forward pass against the number of rotations and images: it grows with the batch only.

    python benchmarks/memory.py --csv benchmarks/results/memory.csv

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


def peak(rotations: int, batch: int) -> float:
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(rotations), str(batch)], capture_output=True, text=True, check=True
    )
    return float(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--csv", type=Path)
    args = parser.parse_args()
    base = peak(0, 1)
    rows = []
    for rotations, batch in ((1, 1), (12, 1), (1, 16), (2, 16), (4, 16), (12, 16), (12, 32)):
        extra = peak(rotations, batch) - base
        rows.append({"rotations": rotations, "batch": batch, "extra_mib": f"{extra:.0f}"})
        print(rows[-1], flush=True)
    write_rows(args.csv, rows)


if __name__ == "__main__":
    main()
