"""Features on disk: computed once per image, whatever its name, and read by everything that comes later.

A recipe says how rows were made (network, its weights, engine, view, pooling); its hash names a folder. Rows lie in
chunk files, each written beside its place and then renamed, so that a file is whole or absent: a killed process loses
the chunk it was working on and nothing else. Rows are found by the hash of the image's content. Processes that share
a cache take chunks by locks that vanish with the process, so that they share the work as well.

Each chunk has a checksum, which is compared when a row of it is first asked for: a chunk that is damaged, or that lacks
one, is removed, and its rows are computed again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from mgcap.errors import DataError
from mgcap.persistence import chunks
from mgcap.persistence.chunks import DamagedChunk, content_key, pack, unpack
from mgcap.persistence.files import atomic_path, cache_dir
from mgcap.persistence.locks import claimed

__all__ = ["FeatureCache", "Recipe", "RowStore", "StoreInfo", "content_key", "pack", "unpack"]

Recipe = dict[str, Any]

#: Part of every recipe: to be raised when rows would come out otherwise from the same settings.
FORMAT = 1
#: Chunk files that are open for reading at once.
OPEN_FILES = 16


class RowStore:
    """The rows of one recipe.

    Args:
        folder: Where its chunks lie; None keeps the rows in memory.
        say: Called once when the disk is full; from then on rows stay in memory.
        width: Length of a row, where that is known; by default what most of the rows there have.
    """

    def __init__(
        self, folder: Path | None, say: Callable[[str], None] = lambda line: None, width: int | None = None
    ) -> None:
        self.folder = folder
        self.width = width
        self._writes = folder is not None
        self._say = say
        self._where: dict[bytes, tuple[str, int]] = {}
        self._memory: dict[bytes, tuple[Tensor, Tensor]] = {}
        self._seen: set[str] = set()
        self._sound: set[str] = set()  # chunks whose checksum was compared
        self._open: OrderedDict[str, tuple[Tensor, Tensor]] = OrderedDict()
        self.refresh()

    def refresh(self) -> None:
        """Find chunks that were written since; one that cannot be read, or with rows of another width, is removed."""
        if self.folder is None:
            return
        found: dict[str, tuple[list[bytes], int]] = {}
        for path in sorted(self.folder.glob("*.safetensors")):
            if path.name in self._seen:
                continue
            try:
                found[path.name] = chunks.read_keys(path)
            except FileNotFoundError:  # another process pruned it just now
                continue
            except DamagedChunk:
                self._remove(path.name)
        if self.width is None and found:
            rows: Counter[int] = Counter()
            for keys, width in found.values():
                rows[width] += len(keys)
            self.width = rows.most_common(1)[0][0]
        for name, (keys, width) in found.items():
            if width != self.width:
                self._remove(name)
                continue
            self._seen.add(name)
            for row, key in enumerate(keys):
                self._where.setdefault(key, (name, row))

    def __contains__(self, key: bytes) -> bool:
        if key in self._memory:
            return True
        place = self._where.get(key)
        return place is not None and (place[0] in self._sound or self._chunk(place[0]) is not None)

    def __len__(self) -> int:
        return len(self._where.keys() | self._memory.keys())

    def add(self, keys: Sequence[bytes], rows: Tensor) -> None:
        """Write one chunk of rows ``[n, d]``.

        Raises:
            DataError: If they are not finite.
        """
        try:
            packed, scale = pack(rows.float())
        except ValueError as error:
            raise DataError("the features of an image are not finite, so they cannot be kept or used") from error
        if self.width != rows.shape[1]:
            for name in {name for name, _ in self._where.values()}:
                self._remove(name)
            self.width = rows.shape[1]
        if self.folder is not None and self._writes:
            name = chunks.chunk_name(b"".join(keys))
            try:
                with atomic_path(self.folder / name) as temporary:
                    tensors, notes = chunks.chunk_tensors(b"".join(keys), packed, scale)
                    save_file(tensors, temporary, notes)
                    with temporary.open("rb+") as file:
                        os.fsync(file.fileno())
                self._seen.add(name)
                self._sound.add(name)
                self._open.pop(name, None)
                self._where.update((key, (name, row)) for row, key in enumerate(keys))
                return
            except (OSError, SafetensorError) as error:
                self._say(
                    f"the feature cache {self.folder.parent} cannot be written, so features stay in memory: {error}"
                )
                self._writes = False
        self._memory.update((key, (packed[row], scale[row])) for row, key in enumerate(keys))

    def read(self, keys: Sequence[bytes]) -> Tensor:
        """Rows ``[n, d]`` in float32.

        Raises:
            KeyError: If one is not here.
            DataError: If one was damaged or removed after it was found.
        """
        out = torch.empty(len(keys), self.width or 0)
        start = 0
        while start < len(keys):
            if keys[start] in self._memory:
                row, scale = self._memory[keys[start]]
                out[start].copy_(row).mul_(scale)
                start += 1
                continue
            name, first = self._where[keys[start]]
            end = start + 1  # rows that follow each other in the file are read together
            while end < len(keys) and self._where.get(keys[end]) == (name, first + end - start):
                end += 1
            chunk = self._chunk(name)
            if chunk is None:
                raise DataError(f"features in {self.folder} were damaged or removed while they were used; start again")
            part = slice(first, first + end - start)
            out[start:end].copy_(chunk[0][part]).mul_(chunk[1][part].unsqueeze(1))
            start = end
        return out

    def _chunk(self, name: str) -> tuple[Tensor, Tensor] | None:
        """Rows and scales of a chunk that is sound; one that is not is removed."""
        if name not in self._open:
            if self.folder is None:
                raise KeyError(name)
            try:
                self._open[name] = chunks.read_rows(self.folder / name, check=name not in self._sound)
            except (DamagedChunk, FileNotFoundError):
                self._remove(name)
                return None
            self._sound.add(name)
            if len(self._open) > OPEN_FILES:
                self._open.popitem(last=False)
        self._open.move_to_end(name)
        return self._open[name]

    def _remove(self, name: str) -> None:
        """Remove a chunk and forget its rows; one that cannot be removed is not looked at again."""
        self._where = {key: place for key, place in self._where.items() if place[0] != name}
        self._open.pop(name, None)
        self._sound.discard(name)
        self._seen.discard(name)
        if self.folder is not None:
            try:
                (self.folder / name).unlink(missing_ok=True)
            except OSError:
                self._seen.add(name)

    def claim(self, keys: bytes) -> contextlib.AbstractContextManager[bool]:
        """Whether no other process works on the chunk of these keys; it is ours until the block or the process ends."""
        if self.folder is None:
            return contextlib.nullcontext(True)
        return claimed(self.folder / f"{hashlib.sha256(keys).hexdigest()[:32]}.lock")


@dataclass(frozen=True)
class StoreInfo:
    """What ``mgcap cache info`` says about one recipe."""

    folder: Path
    recipe: Recipe
    images: int
    bytes: int
    used: float  #: when it was last opened, in seconds since 1970


def _folder_name(recipe: str) -> str:
    return hashlib.sha256(recipe.encode()).hexdigest()[:32]


def _read_recipe(path: Path) -> Recipe:
    """The recipe that gave the folder its name, or nothing if the file holds another."""
    try:
        recipe: Recipe = json.loads(path.read_text())
        return recipe if _folder_name(json.dumps(recipe, sort_keys=True)) == path.parent.name else {}
    except (OSError, ValueError, RecursionError):
        return {}


class FeatureCache:
    """The stores of all recipes below a folder.

    Args:
        root: ``features`` in the cache folder by default; ``memory`` keeps everything in memory.
        say: Called when the disk is full.
    """

    def __init__(
        self, root: Path | None = None, memory: bool = False, say: Callable[[str], None] = lambda line: None
    ) -> None:
        self.root = None if memory else (root or cache_dir() / "features")
        self._say = say
        self._stores: dict[str, RowStore] = {}
        self._told = False

    def store(self, recipe: Recipe, width: int | None = None) -> RowStore:
        """The rows of a recipe, and how long they are if that is known; its folder is made if need be."""
        text = json.dumps({"format": FORMAT, **recipe}, sort_keys=True)
        name = _folder_name(text)
        if name not in self._stores:
            folder = self.root / name if self.root else None
            if folder is not None:
                try:
                    folder.mkdir(parents=True, exist_ok=True)
                    with atomic_path(folder / "recipe.json") as temporary:  # its time says when it was last used
                        temporary.write_text(json.dumps(json.loads(text), indent=1) + "\n")
                except OSError as error:
                    self._say_once(f"the feature cache {self.root} cannot be written: {error}")
                    folder = folder if folder.is_dir() else None
            self._stores[name] = RowStore(folder, self._say_once, width)
        return self._stores[name]

    def _say_once(self, line: str) -> None:
        if not self._told:
            self._told = True
            self._say(line)

    def info(self) -> list[StoreInfo]:
        """Every recipe with its size, the last used first; a recipe that is damaged is empty."""
        found = []
        for path in sorted(self.root.glob("*/recipe.json")) if self.root else ():
            try:
                recipe = _read_recipe(path)
                size = sum(f.stat().st_size for f in path.parent.iterdir())
                found.append(StoreInfo(path.parent, recipe, len(RowStore(path.parent)), size, path.stat().st_mtime))
            except OSError:
                continue
        return sorted(found, key=lambda info: -info.used)

    def prune(self, older_than_days: float = 0.0, keep_bytes: int | None = None) -> list[StoreInfo]:
        """Remove stores.

        Args:
            older_than_days: Those that were not used for so long.
            keep_bytes: And, the longest unused first, as many as it takes to come below this size.

        Returns:
            What was removed.
        """
        stores = self.info()
        limit = time.time() - 86400 * older_than_days
        gone = [store for store in stores if store.used <= limit] if keep_bytes is None or older_than_days else []
        if keep_bytes is not None:
            left = [store for store in stores if store not in gone]
            total = sum(store.bytes for store in left)
            while left and total > keep_bytes:
                gone.append(left.pop())
                total -= gone[-1].bytes
        for store in gone:
            shutil.rmtree(store.folder)
            self._stores.pop(store.folder.name, None)
        return gone
