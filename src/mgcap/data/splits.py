"""Stratified, seeded splits that keep duplicates of an image in one subset, and their CSV files."""

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
        groups: For each image a fingerprint that its duplicates share (None: it has none). Duplicates stay together,
            whatever their classes; so a class's share may be off by the number of its duplicates.
        classes: Names, for messages.

    Raises:
        DataError: If a class would have no image in one of the subsets.
    """
    if isinstance(train, bool) or train <= 0 or (isinstance(train, float) and train >= 1):
        raise DataError(f"the training part must be a ratio between 0 and 1 or a count per class, not {train}")
    by_class: dict[int, list[int]] = defaultdict(list)
    for index, target in enumerate(targets):
        by_class[target].append(index)
    duplicates: dict[Hashable, list[int]] = defaultdict(list)
    for index, fingerprint in enumerate(groups or ()):
        if fingerprint is not None:
            duplicates[fingerprint].append(index)
    twins = {index: members for members in duplicates.values() if len(members) > 1 for index in members}

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
            (chosen if fits else barred).update(together)
            taken += sum(targets[i] == target for i in together) if fits else 0
    split = Split(tuple(sorted(chosen)), tuple(i for i in range(len(targets)) if i not in chosen))
    for members, which in ((split.train, "training"), (split.test, "test")):
        missing = set(by_class) - {targets[i] for i in members}
        if missing:
            first = min(missing)
            name = classes[first] if classes else f"class {first}"
            raise DataError(f"all images of '{name}' are duplicates of each other; none is left for the {which} subset")
    return split


def write_split(path: str | Path, folder: SceneFolder, split: Split) -> None:
    """Write a split as CSV with the columns ``path`` (below the root), ``label`` and ``subset``."""
    subsets = {**dict.fromkeys(split.train, "train"), **dict.fromkeys(split.test, "test")}
    with atomic_path(Path(path)) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(("path", "label", "subset"))
        for index in sorted(subsets):
            writer.writerow((folder.relative(folder.paths[index]), folder.labels[index], subsets[index]))


def read_split(path: str | Path, folder: SceneFolder) -> Split:
    """Read a split back and match it with the folder's files.

    The column ``subset`` was called ``side`` in earlier versions; such files are read too.

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
    column = "side" if rows and "subset" not in rows[0] else "subset"
    if not rows or not {"path", "label", column} <= set(rows[0]):
        raise DataError(f"{path} is not a split file: it needs the columns path, label and subset")
    index_of = {folder.relative(p): i for i, p in enumerate(folder.paths)}
    subsets: dict[str, list[int]] = {"train": [], "test": []}
    for number, row in enumerate(rows, start=2):
        if row[column] not in subsets:
            raise DataError(f"{path}, line {number}: the subset must be train or test, not '{row[column]}'")
        if row["path"] not in index_of:
            raise DataError(f"{path}, line {number}: {folder.root} has no image {row['path']}")
        index = index_of[row["path"]]
        if folder.labels[index] != row["label"]:
            raise DataError(f"{path}, line {number}: {row['path']} is labelled '{row['label']}' but lies elsewhere")
        subsets[row[column]].append(index)
    split = Split(tuple(sorted(set(subsets["train"]))), tuple(sorted(set(subsets["test"]))))
    both = set(split.train) & set(split.test)
    if both:
        raise DataError(f"{path} has {folder.relative(folder.paths[min(both)])} in both subsets")
    return split
