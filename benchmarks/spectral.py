"""The spectral layer against torch.linalg.eigh, SVD and Newton-Schulz, forward and backward, in one run.

    python benchmarks/spectral.py --csv benchmarks/results/spectral.csv

Contenders take turns, so that a noisy machine is noisy for all; the ratio is of medians.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path

import torch
from common import write_rows

from mgcap.embedding import gaussian_embedding, normalise_features
from mgcap.spectral import matrix_sqrt


def by_eigh(matrix: torch.Tensor) -> torch.Tensor:
    values, vectors = torch.linalg.eigh(matrix)
    return (vectors * values.clamp(1e-5, 1e5).sqrt().unsqueeze(-2)) @ vectors.mT


def by_svd(matrix: torch.Tensor) -> torch.Tensor:
    u, s, v = torch.linalg.svd(matrix)
    return (u * s.clamp(1e-5, 1e5).sqrt().unsqueeze(-2)) @ v


CONTENDERS = {
    "matrix_sqrt": matrix_sqrt,
    "eigh with autograd": by_eigh,
    "svd with autograd": by_svd,
    "newton-schulz": lambda matrix: matrix_sqrt(matrix, method="newton-schulz"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sides", type=int, nargs="+", default=[65, 129, 257, 513])
    parser.add_argument("--batch", type=int, default=12)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--csv", type=Path)
    args = parser.parse_args()
    rows = []
    for side in args.sides:
        features = torch.randn(args.batch, side - 1, 196, generator=torch.Generator().manual_seed(0))
        matrix = gaussian_embedding(normalise_features(features))
        weight = torch.randn_like(matrix)
        times: dict[str, list[float]] = {name: [] for name in CONTENDERS}
        finite = {}
        for repeat in range(args.repeats + 1):
            for name, function in CONTENDERS.items():
                leaf = matrix.clone().requires_grad_()
                start = time.perf_counter()
                function(leaf).mul(weight).sum().backward()
                if repeat:  # the first is warm-up
                    times[name].append(time.perf_counter() - start)
                finite[name] = bool(torch.isfinite(leaf.grad).all())
        ours = statistics.median(times["matrix_sqrt"])
        for name in CONTENDERS:
            median = statistics.median(times[name])
            rows.append(
                {
                    "side": side,
                    "batch": args.batch,
                    "method": name,
                    "seconds": f"{median:.4f}",
                    "times_ours": f"{median / ours:.2f}",
                    "gradient_finite": finite[name],
                }
            )
            print(rows[-1], flush=True)
    write_rows(args.csv, rows)


if __name__ == "__main__":
    main()
