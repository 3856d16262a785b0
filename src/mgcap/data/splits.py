"""Stratified, seeded splits that keep copies of one image on one side, and their CSV files."""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mgcap.data.folders import SceneFolder
from mgcap.errors import DataError, missing
from mgcap.persistence.files import atomic_path


@dataclass(frozen=True)
class Split:
    """Indices of the training and the test images."""

    train: tuple[int, ...]
    test: tuple[int, ...]


def make_split(
    targets: Sequence[int],
    train: float | int,
    seed: int = 0,
    groups: Sequence[Hashable | None] | None = None,
    classes: Sequence[str] | None = None,
) -> Split:
    """Split images by class.

    Args:
        targets: For each image the index of its class.
        train: A ratio in (0, 1), or the number of training images per class.
        seed: The same seed gives the same split.
        groups: For each image a mark that its copies share (None: it has none). Copies stay together, whatever
            their classes; so a class's share may be off by the number of its copies.
        classes: Names, for messages.

    Raises:
        DataError: If a class would have no image on one of the sides.
    """
    if isinstance(train, bool) or train <= 0 or (isinstance(train, float) and train >= 1):
        raise DataError(f"the training part must be a ratio between 0 and 1 or a count per class, not {train}")
    by_class: dict[int, list[int]] = defaultdict(list)
    for index, target in enumerate(targets):
        by_class[target].append(index)
    copies: dict[Hashable, list[int]] = defaultdict(list)
    for index, mark in enumerate(groups or ()):
        if mark is not None:
            copies[mark].append(index)
    twins = {index: members for members in copies.values() if len(members) > 1 for index in members}

    rng = np.random.default_rng(seed)
    chosen: set[int] = set()
    barred: set[int] = set()
    for target in sorted(by_class):
        own = by_class[target]
        name = classes[target] if classes else f"class {target}"
        wanted = round(train * len(own)) if isinstance(train, float) else train
        if len(own) < 2:
            raise DataError(f"'{name}' has {len(own)} image; a split needs at least two in every class")
        if isinstance(train, int) and wanted >= len(own):
            raise DataError(f"'{name}' has {len(own)} images; {wanted} for training leaves none for testing")
        wanted = min(max(wanted, 1), len(own) - 1)
        taken = sum(index in chosen for index in own)
        for index in rng.permutation(own).tolist():
            if index in chosen or index in barred:
                continue
            together = twins.get(index, [index])
            fits = taken + sum(targets[i] == target for i in together) <= wanted
            side = chosen if fits else barred
            side.update(together)
            taken += sum(targets[i] == target for i in together) if fits else 0
    split = Split(tuple(sorted(chosen)), tuple(i for i in range(len(targets)) if i not in chosen))
    for members, which in ((split.train, "training"), (split.test, "test")):
        missing = set(by_class) - {targets[i] for i in members}
        if missing:
            first = min(missing)
            name = classes[first] if classes else f"class {first}"
            raise DataError(f"all images of '{name}' are copies of each other, so none is left for the {which} side")
    return split


def write_split(path: str | Path, folder: SceneFolder, split: Split) -> None:
    """Write a split as CSV with the columns ``path`` (below the root), ``label`` and ``side``."""
    sides = {**dict.fromkeys(split.train, "train"), **dict.fromkeys(split.test, "test")}
    with atomic_path(Path(path)) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(("path", "label", "side"))
        for index in sorted(sides):
            writer.writerow((folder.relative(folder.paths[index]), folder.labels[index], sides[index]))


def read_split(path: str | Path, folder: SceneFolder) -> Split:
    """Read a split back and match it with the folder's files.

    Raises:
        DataError: If the file is not a split, or names images that the folder does not have.
    """
    path = Path(path)
    if not path.exists():
        raise DataError(f"the split file cannot be read: {missing('file', path)}")
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"the split file {path} cannot be read: {error}") from error
    if not rows or not {"path", "label", "side"} <= set(rows[0]):
        raise DataError(f"{path} is not a split file: it needs the columns path, label and side")
    index_of = {folder.relative(p): i for i, p in enumerate(folder.paths)}
    sides: dict[str, list[int]] = {"train": [], "test": []}
    for number, row in enumerate(rows, start=2):
        if row["side"] not in sides:
            raise DataError(f"{path}, line {number}: the side must be train or test, not '{row['side']}'")
        if row["path"] not in index_of:
            raise DataError(f"{path}, line {number}: {folder.root} has no image {row['path']}")
        index = index_of[row["path"]]
        if folder.labels[index] != row["label"]:
            raise DataError(f"{path}, line {number}: {row['path']} is labelled '{row['label']}' but lies elsewhere")
        sides[row["side"]].append(index)
    split = Split(tuple(sorted(set(sides["train"]))), tuple(sorted(set(sides["test"]))))
    both = set(split.train) & set(split.test)
    if both:
        raise DataError(f"{path} has {folder.relative(folder.paths[min(both)])} on both sides")
    return split
