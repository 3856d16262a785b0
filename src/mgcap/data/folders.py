"""A folder with one subfolder per class, as people unzip such datasets."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mgcap.data.images import is_image, read_image
from mgcap.errors import DataError, ImageError, missing

#: How deep the class folders may lie below the given one (``UCMerced_LandUse/Images/agricultural``).
MAX_DEPTH = 4


@dataclass(frozen=True)
class SceneFolder:
    """Image files with their classes.

    Attributes:
        root: The folder that holds the class folders.
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
        """A file's name below the root, with forward slashes."""
        return path.relative_to(self.root).as_posix()

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


def open_folder(folder: str | Path, minimum_classes: int = 2) -> SceneFolder:
    """Find the classes and images of a folder.

    Args:
        folder: The class folders' parent, or a folder somewhat above it.
        minimum_classes: How many classes there must be.

    Raises:
        DataError: With one sentence saying what is missing.
    """
    folder = Path(folder).expanduser()
    if not folder.exists():
        raise DataError(missing("folder", folder))
    if not folder.is_dir():
        raise DataError(f"{folder} is a file; give a folder with one subfolder per class")
    root = find_class_root(folder)
    if root is None:
        raise DataError(f"{folder} has no images in subfolders; put each class's images into a subfolder of its name")
    groups = {p.name: files for p in _subfolders(root) if (files := list_images(p))}
    if len(groups) < minimum_classes:
        only = ", ".join(groups)
        raise DataError(
            f"{root} has only the class '{only}', and {minimum_classes} are needed; "
            "put the images of each class into a subfolder of its name"
        )
    classes = tuple(sorted(groups))
    return SceneFolder(
        root=root,
        paths=tuple(path for name in classes for path in groups[name]),
        targets=tuple(i for i, name in enumerate(classes) for _ in groups[name]),
        classes=classes,
    )


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
