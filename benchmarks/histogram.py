"""A colour histogram with an SVM on the split of a model, to stand beside the model's own accuracy.

    python benchmarks/histogram.py demo-output/scenes --split demo-output/split.csv

Bins, C and gamma are chosen by cross-validation on the training images.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from sklearn.model_selection import GridSearchCV
from sklearn.svm import SVC

from mgcap.data.folders import open_folder
from mgcap.data.images import read_image
from mgcap.data.splits import read_split


def histogram(path: Path, bins: int) -> np.ndarray:
    pixels = read_image(path).flatten(1).T.numpy()
    counts = np.histogramdd(pixels, bins=(bins,) * 3, range=((0, 1 + 1e-6),) * 3)[0].ravel()
    return np.sqrt(counts / counts.sum())  # Hellinger


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--split", type=Path, required=True)
    args = parser.parse_args()
    folder = open_folder(args.data)
    split = read_split(args.split, folder)
    targets = np.array(folder.targets)
    train, test = list(split.train), list(split.test)
    best = None
    for bins in (4, 8):
        features = np.stack([histogram(path, bins) for path in folder.paths])
        search = GridSearchCV(SVC(), {"C": [1, 10, 100], "gamma": [0.5, 2, 8]}, cv=5).fit(
            features[train], targets[train]
        )
        if best is None or search.best_score_ > best[0]:
            best = (search.best_score_, bins, search.best_params_, search.score(features[test], targets[test]))
    print(f"bins {best[1]}, {best[2]}: cross-validated {100 * best[0]:.2f} %, on the test images {100 * best[3]:.2f} %")


if __name__ == "__main__":
    main()
