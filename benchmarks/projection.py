"""How many numbers of a descriptor an index needs, and the projection that ships.

python benchmarks/projection.py UCMERCED --csv projection.csv
python benchmarks/projection.py UCMERCED --write src/mgcap/persistence/shipped/compact.projection

Axes are the principal ones of descriptors of aerial images: UC Merced, tiles of the sample scene of Kitsap County, and
drawn scenes. For the comparison they are fitted anew on each split, to its training images and the other two, so that
they never see a test image; a head for whole descriptors is then applied to projected ones.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from sklearn.utils.extmath import randomized_svd
from torch import Tensor

from mgcap import SceneClassifier
from mgcap.cli.console import bars
from mgcap.data.folders import content_hashes, open_folder
from mgcap.data.sample_scene import sample_scene
from mgcap.data.splits import make_split
from mgcap.data.synthetic import CLASSES, draw_scene
from mgcap.inference.projection import Projection, write_projection
from mgcap.persistence.files import write_rows
from mgcap.training.softmax import HeadSolver

parser = argparse.ArgumentParser()
parser.add_argument("data", type=Path)
parser.add_argument("--numbers", type=int, nargs="+", default=[128, 256, 384, 512])
parser.add_argument("--runs", type=int, default=10)
parser.add_argument("--csv", type=Path)
parser.add_argument("--write", type=Path, help="Do not compare: write the projection with the most numbers.")
args = parser.parse_args()

#: What a tile of the sample scene counts; there are few of them.
OTHERS = 2.0


def axes_of(own: Tensor, others: Tensor) -> tuple[Tensor, Tensor]:
    """The mean of the training images, and principal axes, the strongest first."""
    mean = own.mean(0)
    rows = torch.cat([own - mean, OTHERS**0.5 * (others - others.mean(0))])
    _, _, axes = randomized_svd(rows.numpy(), max(args.numbers), n_iter=4, random_state=0)
    return mean, torch.from_numpy(axes.copy())


folder = open_folder(args.data)
classifier = SceneClassifier.load("ucmerced", progress=bars)
scene = np.asarray(Image.open(sample_scene(bars.say)).convert("RGB"))
tiles = [scene[y : y + 256, x : x + 256] for y in range(0, 4744, 256) for x in range(0, 4744, 256)]
drawn = [draw_scene(name, 11, number) for name in CLASSES for number in range(4)]
own = torch.from_numpy(np.asarray(classifier.transform(folder.paths), np.float32))
others = torch.from_numpy(np.asarray(classifier.transform([*tiles, *drawn]), np.float32))

if args.write:
    mean, axes = axes_of(own, others)
    write_projection(args.write, Projection(mean, axes), classifier.model_)
    raise SystemExit

solver = HeadSolver(own, folder.targets, len(folder.classes))
targets = np.array(folder.targets)
hashes = content_hashes(folder.paths, lambda: None)
rows = []
for run in range(args.runs):
    split = make_split(folder.targets, 0.5, run, hashes, folder.classes)
    train, test = list(split.train), list(split.test)
    head = solver.head(solver.solve(train, seed=run))
    right = {0: ((own[test] @ head.weight.T + head.bias).argmax(1).numpy() == targets[test]).mean()}
    mean, axes = axes_of(own[train], others)
    for numbers in args.numbers:
        vectors = ((own[test] - mean) @ axes[:numbers].T).half().float()
        logits = vectors @ (head.weight @ axes[:numbers].T).T + head.bias + head.weight @ mean
        right[numbers] = (logits.argmax(1).numpy() == targets[test]).mean()
    rows.append({"run": run, **{str(n or "all"): round(100 * float(share), 4) for n, share in right.items()}})
    print(rows[-1], flush=True)
print({key: round(float(np.mean([row[key] for row in rows])), 2) for key in rows[0] if key != "run"})
if args.csv:
    write_rows(args.csv, rows)
