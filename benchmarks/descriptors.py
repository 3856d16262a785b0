"""What else could be made of the same views: ideas for the descriptor, each by cross-validation on training images.

    python benchmarks/descriptors.py UCMERCED --csv benchmarks/results/descriptors.csv

All ideas begin with the pooled matrices of `compact`, which are in the feature cache or go there. For each of some
splits the head is solved on the training images by five folds; the figure is the mean accuracy of what was held out.
No test image is looked at. Ideas with axes of their own (whitening) take these from the training images of the split.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from common import write_rows
from torch import Tensor

from mgcap import SceneDescriptor
from mgcap.cli.console import bars
from mgcap.data.folders import content_hashes, open_folder
from mgcap.data.splits import make_split
from mgcap.head import descriptor_vector
from mgcap.inference.extraction import Extractor
from mgcap.inference.preparation import open_cache
from mgcap.training.softmax import LAMBDAS, HeadSolver
from mgcap.typing import Array

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("data", type=Path)
parser.add_argument("--runs", type=int, default=3)
parser.add_argument("--only", nargs="+", help="Ideas that are tried, by their names.")
parser.add_argument("--csv", type=Path)
args = parser.parse_args()

folder = open_folder(args.data)
hashes = content_hashes(folder.paths)
descriptor = SceneDescriptor(progress=bars).fit(folder.paths[:1])
extractor = Extractor(descriptor.model_, descriptor.engine_, open_cache(descriptor.runtime()))
with bars("Extracting features", len(folder)) as step:
    keys = [key for key in extractor.fill(folder.paths, lambda i, e: None, step) if key]
pooled = extractor.pooled(keys)  # [n, S, D, D]
fused = pooled.mean(1)


def spectrum(matrices: Tensor, function: Callable[[Tensor], Tensor], least: float = 1e-5) -> Tensor:
    """A function of the eigenvalues, as vectors of length one."""
    parts = []
    for part in matrices.split(64):
        values, vectors = torch.linalg.eigh(part)
        parts.append(descriptor_vector((vectors * function(values.clamp_min(least))[:, None]) @ vectors.mT, "triangle"))
    return torch.cat(parts)


def to_power(exponent: float) -> Callable[[Tensor], Tensor]:
    return lambda values: values.pow(exponent)


def shrunk(share: float) -> Tensor:
    """Towards a multiple of one: what the fixed ridge does, by more."""
    scale = fused.diagonal(dim1=-2, dim2=-1).mean(-1)[:, None, None]
    return (1 - share) * fused + share * scale * torch.eye(fused.shape[-1])


def correlation() -> Tensor:
    """Each channel with a variance of one, but the mean as it is."""
    root = fused.diagonal(dim1=-2, dim2=-1).clamp_min(1e-8).sqrt()
    root[:, -1] = 1
    return fused / root[:, :, None] / root[:, None]


def whitened(train: Array, power: float) -> Tensor:
    """Partly freed of what all training images have in common."""
    values, vectors = torch.linalg.eigh(fused[train].mean(0))
    axes = (vectors * values.clamp_min(1e-6) ** (-power / 2)) @ vectors.T
    return spectrum(axes @ fused @ axes, torch.sqrt, 1e-6)


def signed(rows: Tensor, power: float) -> Tensor:
    return torch.nn.functional.normalize(rows.sign() * rows.abs().pow(power))


def joined(*rows: Tensor) -> Tensor:
    return torch.cat(rows, 1) / len(rows) ** 0.5


root = spectrum(fused, torch.sqrt)
#: By name: vectors of all images, given the training images of a split.
IDEAS: dict[str, Callable[[Array], Tensor]] = {
    "as it is: square root of the mean": lambda train: root,
    "power 0.3": lambda train: spectrum(fused, to_power(0.3)),
    "power 0.4": lambda train: spectrum(fused, to_power(0.4)),
    "power 0.6": lambda train: spectrum(fused, to_power(0.6)),
    "power 0.7": lambda train: spectrum(fused, to_power(0.7)),
    "logarithm": lambda train: spectrum(fused, torch.log, 1e-3),
    "shrinkage 0.01": lambda train: spectrum(shrunk(0.01), torch.sqrt),
    "shrinkage 0.1": lambda train: spectrum(shrunk(0.1), torch.sqrt),
    "correlation": lambda train: spectrum(correlation(), torch.sqrt),
    "granularities side by side": lambda train: joined(*(spectrum(own, torch.sqrt) for own in pooled.unbind(1))),
    "power 0.7 beside 0.3": lambda train: joined(*(spectrum(fused, to_power(p)) for p in (0.7, 0.3))),
    "signed power 0.5 of the entries": lambda train: signed(root, 0.5),
    "signed power 0.8 of the entries": lambda train: signed(root, 0.8),
    "whitened by half": lambda train: whitened(train, 0.5),
    "whitened": lambda train: whitened(train, 1.0),
}
WITH_AXES = ("whitened by half", "whitened")

rows = []
for name in args.only or IDEAS:
    kept = None if name in WITH_AXES else HeadSolver(IDEAS[name](np.array([])), folder.targets, len(folder.classes))
    for share in (0.5, 0.8):
        found = []
        for run in range(args.runs):
            train = np.array(make_split(folder.targets, share, run, hashes, folder.classes).train)
            solver = kept or HeadSolver(IDEAS[name](train), folder.targets, len(folder.classes))
            solution = solver.solve(train.tolist(), LAMBDAS, seed=0)
            found.append(100 * solution.cv_accuracy[solution.regularisation])
        rows.append({"idea": name, "share": share, "accuracy": round(float(np.mean(found)), 2)})
        print(rows[-1], flush=True)
write_rows(args.csv, rows)
