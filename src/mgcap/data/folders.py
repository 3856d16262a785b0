"""Images with their classes: a folder with one subfolder per class, as people unzip such datasets.

Or what stands for one: a zip archive of it, a CSV list of files and labels, or a flat folder whose files' names say the
class.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mgcap.data import lists
from mgcap.data.archives import is_archive, unpacked
from mgcap.data.images import is_image, read_image
from mgcap.errors import DataError, ImageError, missing
from mgcap.runtime import Progress, silent

#: How deep the class folders may lie below the given one (``UCMerced_LandUse/Images/agricultural``).
MAX_DEPTH = 4


@dataclass(frozen=True)
class SceneFolder:
    """Image files with their classes.

    Attributes:
        root: The folder that holds the class folders, or the list.
        paths: Image files, sorted by class and name.
        targets: For each file the index of its class.
        classes: Class names, sorted.
    """

    root: Path
    paths: tuple[Path, ...]
    targets: tuple[int, ...]
    classes: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.paths)

    @property
    def labels(self) -> list[str]:
        """For each file the name of its class."""
        return [self.classes[t] for t in self.targets]

    @property
    def counts(self) -> dict[str, int]:
        """Images per class."""
        counter = Counter(self.targets)
        return {name: counter[i] for i, name in enumerate(self.classes)}

    def relative(self, path: Path) -> str:
        """A file's name as seen from the root, with forward slashes."""
        if path.is_relative_to(self.root):
            return path.relative_to(self.root).as_posix()
        try:
            return Path(os.path.relpath(path, self.root)).as_posix()  # a list may name files elsewhere
        except ValueError:  # on another drive
            return path.as_posix()

    def subset(self, indices: Iterable[int]) -> SceneFolder:
        """The same classes with some of the files."""
        chosen = list(indices)
        return SceneFolder(
            self.root, tuple(self.paths[i] for i in chosen), tuple(self.targets[i] for i in chosen), self.classes
        )


def list_images(folder: Path) -> list[Path]:
    """Images anywhere below a folder, sorted, hidden folders left out."""
    return sorted(
        p
        for p in folder.rglob("*")
        if is_image(p) and p.is_file() and not any(part.startswith(".") for part in p.relative_to(folder).parts)
    )


def _subfolders(folder: Path) -> list[Path]:
    return sorted(p for p in folder.iterdir() if p.is_dir() and not p.name.startswith((".", "__MACOSX")))


def _holds_images(folder: Path) -> bool:
    return any(is_image(p) for p in folder.iterdir())


def find_class_root(folder: Path, depth: int = MAX_DEPTH) -> Path | None:
    """The folder at or below ``folder`` whose subfolders hold the images: the one with the most of them."""
    below = _subfolders(folder)
    with_images = [p for p in below if _holds_images(p)]
    deeper = [root for p in below if p not in with_images and depth > 0 if (root := find_class_root(p, depth - 1))]
    best = max(deeper, key=lambda root: len(_subfolders(root)), default=None)
    if len(with_images) > (len(_subfolders(best)) if best else 0):
        return folder
    return best


def open_folder(folder: str | Path, minimum_classes: int = 2, progress: Progress = silent) -> SceneFolder:
    """Find the classes and images of a folder, or of what stands for one.

    Args:
        folder: The class folders' parent, or a folder somewhat above it; a folder of images with names such as
            ``forest_001.tif``; a zip archive of either; or a CSV file with the columns ``path`` and ``label``.
        minimum_classes: How many classes there must be.
        progress: Is told how classes were found, if not by folders.

    Raises:
        DataError: With one sentence saying what is missing.
    """
    folder = Path(folder).expanduser()
    is_list = folder.suffix.lower() in lists.SUFFIXES
    if not folder.exists():
        raise DataError(missing("file" if is_list or is_archive(folder) else "folder", folder))
    if folder.is_dir():
        return _in_folder(folder, folder, minimum_classes, progress)
    if is_archive(folder):
        return _in_folder(unpacked(folder, progress), folder, minimum_classes, progress)
    if not is_list:
        raise DataError(
            f"{folder} is a file; give a folder with one subfolder per class, a .zip archive of one, or a .csv list of "
            "paths and labels"
        )
    found = _sorted(folder.parent, lists.read_list(folder, progress))
    if len(found.classes) < minimum_classes:
        raise DataError(f"{folder} has only the class '{found.classes[0]}', and {minimum_classes} are needed")
    return found


def _sorted(root: Path, labelled: Iterable[tuple[Path, str]]) -> SceneFolder:
    """Files by class and name."""
    ordered = sorted(labelled, key=lambda pair: (pair[1], pair[0]))
    classes = tuple(sorted({label for _, label in ordered}))
    number = {label: i for i, label in enumerate(classes)}
    return SceneFolder(root, tuple(p for p, _ in ordered), tuple(number[label] for _, label in ordered), classes)


def _in_folder(folder: Path, given: Path, minimum_classes: int, progress: Progress) -> SceneFolder:
    """Images in class folders, or else with classes in their names.

    Args:
        folder: Where to look.
        given: What messages call it.
        minimum_classes: How many classes there must be.
        progress: Is told how classes were found.
    """
    root = find_class_root(folder)
    if root is None:
        if named := lists.read_names(folder, minimum_classes, progress):
            return _sorted(folder, named)
        raise DataError(
            f"{given} has no images in subfolders, nor {minimum_classes} or more classes in the names of its files, as "
            "forest_001.tif; put each class's images into a subfolder of its name, or list them in a .csv with the "
            "columns path and label"
        )
    groups = {p.name: files for p in _subfolders(root) if (files := list_images(p))}
    if len(groups) < minimum_classes:
        (only,) = groups
        wrapped = given.is_file() and lists.read_names(root / only, minimum_classes, progress)
        if wrapped:  # archives often have one folder around all their files
            return _sorted(root / only, wrapped)
        where = given if given.is_file() else root
        raise DataError(
            f"{where} has only the class '{only}', and {minimum_classes} are needed; "
            "put the images of each class into a subfolder of its name"
        )
    return _sorted(root, ((path, name) for name, files in groups.items() for path in files))


def content_hashes(
    paths: Sequence[Path], on_step: Callable[[], None] = lambda: None, workers: int = 2
) -> list[str | None]:
    """A fingerprint of each image's pixels, shared by duplicates of any name or format; None if unreadable."""

    def one(path: Path) -> str | None:
        try:
            pixels = (read_image(path) * 65535).round().numpy().astype(np.uint16)
        except ImageError:
            return None
        return hashlib.sha256(repr(pixels.shape).encode() + pixels.tobytes()).hexdigest()

    hashes: list[str | None] = []
    with ThreadPoolExecutor(workers) as pool:
        for value in pool.map(one, paths):
            hashes.append(value)
            on_step()
    return hashes
