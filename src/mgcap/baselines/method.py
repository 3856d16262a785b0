"""What every method has in common: how it is listed, fitted and asked, and what methods share.

A method is added by one file: a class with ``fit``, ``predict`` and ``parameters``, and a call of :func:`register`.
Files in this folder are found by themselves, others by ``mgcap compare --add FILE``.
"""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from mgcap.data.stream import Item, to_tensor
from mgcap.errors import DataError, ImageError, missing
from mgcap.persistence.cache import FeatureCache, Recipe, RowStore, content_key
from mgcap.runtime import Progress, Runtime, silent
from mgcap.typing import Array

#: Families in the order of the paper's tables.
FAMILIES = ("handcrafted", "mid-level", "deep, frozen", "deep, fine-tuned", "MG-CAP")
#: Every method sees images of this side.
SIDE = 256
#: Images whose descriptors are computed and kept together.
CHUNK = 32


@dataclass(frozen=True)
class About:
    """How a method is listed.

    Attributes:
        name: What ``methods`` takes.
        title: What tables show.
        family: One of :data:`FAMILIES`.
        source: Who proposed it.
        what: What it does here, and where we had to choose.
        published: Its name in the published tables, if it is there.
        needs: Packages, or weights as ``weights:NAME``, that are not always at hand.
    """

    name: str
    title: str
    family: str
    source: str
    what: str
    published: str | None = None
    needs: tuple[str, ...] = ()


class Method(Protocol):
    """A way to classify images."""

    def fit(self, images: Sequence[Item], labels: Sequence[str]) -> object:
        """Learn from images and their labels."""

    def predict(self, images: Sequence[Item]) -> Array:
        """The label of each image."""

    def parameters(self) -> int:
        """How many numbers the fitted method consists of."""


class Descriptor(Protocol):
    """A vector for each image that does not depend on what a method learns, so that methods and runs share it."""

    recipe: Recipe  #: everything that the vector depends on

    def rows(self, images: Tensor) -> Tensor:
        """``[B, 3, 256, 256]`` in [0, 1] to ``[B, d]``."""


@dataclass
class Tools:
    """What the methods of a comparison share.

    Attributes:
        cache: Keeps descriptors.
        seed: Of everything random.
        engine: Computes frozen networks, see :mod:`mgcap.inference.engines`.
        device: Where networks compute and are trained.
        progress: Where to report.
    """

    cache: FeatureCache = field(default_factory=lambda: FeatureCache(memory=True))
    seed: int = 0
    engine: str = "auto"
    device: str = "auto"
    progress: Progress = silent

    def runtime(self) -> Runtime:
        """Engine, device, seed and progress."""
        return Runtime(self.engine, self.device, self.seed, progress=self.progress)

    def torch_device(self) -> torch.device:
        """The device that is meant."""
        return self.runtime().torch_device()

    def describe(self, descriptor: Descriptor, images: Sequence[Item]) -> Tensor:
        """Descriptors ``[n, d]``; what another method, run or process has computed is not computed again."""
        keys = [content_key(item) for item in images]
        for item, key in zip(images, keys, strict=True):
            if key is None:
                raise ImageError(f"{item}: cannot be read")
        known = [key for key in keys if key is not None]
        store = self.cache.store(descriptor.recipe)
        left = [list(range(start, min(start + CHUNK, len(images)))) for start in range(0, len(images), CHUNK)]
        while left := [chunk for chunk in left if any(known[i] not in store for i in chunk)]:
            ours = [self._fill(store, descriptor, images, known, chunk) for chunk in left]
            if not any(ours):
                time.sleep(0.1)  # other processes are at work on all that is left
            store.refresh()
        return store.read(known)

    @staticmethod
    def _fill(
        store: RowStore, descriptor: Descriptor, images: Sequence[Item], keys: Sequence[bytes], chunk: Sequence[int]
    ) -> bool:
        """Compute what is missing of a chunk, unless another process does so."""
        with store.claim(b"".join(keys[i] for i in chunk)) as ours:
            if not ours:
                return False
            store.refresh()
            todo = {keys[i]: i for i in chunk if keys[i] not in store}
            if todo:
                pixels = torch.stack([standard(images[i]) for i in todo.values()])
                store.add(list(todo), descriptor.rows(pixels))
        return True


def standard(item: Item) -> Tensor:
    """An image as ``[3, 256, 256]`` in [0, 1]."""
    image = to_tensor(item)
    if image.shape[-2:] == (SIDE, SIDE):
        return image
    return F.interpolate(image[None], (SIDE, SIDE), mode="bilinear", antialias=True)[0].clamp(0, 1)


#: Makes a method.
Maker = Callable[[Tools], Method]

#: Every method by name: how it is listed, and what makes it.
METHODS: dict[str, tuple[About, Maker]] = {}


def register(about: About, make: Maker) -> None:
    """Register a method.

    Raises:
        DataError: If the name is taken by another one, or the family is unknown.
    """
    if about.family not in FAMILIES:
        raise DataError(f"the method '{about.name}' has the family '{about.family}'; there are {', '.join(FAMILIES)}")
    taken = METHODS.get(about.name)
    if taken is not None and taken[0] != about:
        raise DataError(f"there are two methods with the name '{about.name}'")
    METHODS[about.name] = about, make


def find_methods(files: Sequence[Path] = ()) -> dict[str, tuple[About, Maker]]:
    """All methods: those of this folder and of the files given, by family.

    Raises:
        DataError: If a file cannot be used.
    """
    for module in pkgutil.iter_modules([str(Path(__file__).parent)]):
        importlib.import_module(f"mgcap.baselines.{module.name}")
    for path in files:
        _run_file(path)
    return dict(sorted(METHODS.items(), key=lambda entry: FAMILIES.index(entry[1][0].family)))


def _run_file(path: Path) -> None:
    if not path.is_file():
        raise DataError(missing("file", path))
    before = set(METHODS)
    spec = importlib.util.spec_from_file_location(f"mgcap_method_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise DataError(f"{path} is not a Python file")
    try:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))
    except DataError:
        raise
    except Exception as error:
        raise DataError(f"{path} cannot be used: {type(error).__name__}: {error}") from error
    if set(METHODS) == before and not any(make.__module__ == spec.name for _, make in METHODS.values()):
        raise DataError(f"{path} registers no method; it should call mgcap.baselines.register")
