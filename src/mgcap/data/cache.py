"""Features on disk: computed once per image, whatever its name, and read by everything that comes later.

A recipe says how rows were made (network, its weights, engine, view, pooling); its hash names a folder. Rows lie in
chunk files, each written beside its place and then renamed, so that a file is whole or absent: a killed process loses
the chunk it was working on and nothing else. Rows are found by the hash of the image's content. Processes that share
a cache take chunks by locks that vanish with the process, so that they share the work as well.

Rows are kept in half precision with a power of two for each row as its scale: entries below the largest by less than
nine orders of magnitude keep a relative precision of 2**-11.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from mgcap.assets import atomic_path, cache_dir
from mgcap.data.stream import Item

Recipe = dict[str, Any]

#: Part of every recipe: to be raised when rows would come out otherwise from the same settings.
FORMAT = 1
#: Chunk files that are open for reading at once.
OPEN_FILES = 16


def content_key(item: Item) -> bytes | None:
    """A hash of an image's content: the file's bytes, or the array's; None for a file that cannot be opened."""
    if isinstance(item, str | Path):
        try:
            state = Path(item).stat()
            return _file_hash(str(item), state.st_size, state.st_mtime_ns)
        except OSError:
            return None
    array = np.ascontiguousarray(np.asarray(item))
    kind = "tensor" if isinstance(item, Tensor) else "array"
    return hashlib.sha256(f"{kind} {array.dtype} {array.shape}".encode() + array.tobytes()).digest()


@lru_cache(maxsize=200_000)
def _file_hash(path: str, size: int, changed: int) -> bytes:
    """The hash of a file that has not changed since; the same images come in every epoch and to every method."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()


def pack(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Rows ``[n, d]`` in half precision and a power of two for each, so that its largest entry is just below 2**16."""
    if not bool(torch.isfinite(rows).all()):
        raise ValueError("features must be finite")
    largest = rows.abs().amax(1).clamp_min(torch.finfo(torch.float32).tiny)
    scale = torch.exp2(torch.floor(torch.log2(largest)) - 14)
    return (rows / scale.unsqueeze(1)).clamp(-65504, 65504).half(), scale


def unpack(rows: Tensor, scale: Tensor) -> Tensor:
    """The inverse of :func:`pack` up to rounding, in float32."""
    return rows.float() * scale.unsqueeze(1)


class RowStore:
    """The rows of one recipe.

    Args:
        folder: Where its chunks lie; None keeps the rows in memory.
        say: Is told once when the disk does not take more; from then on rows stay in memory.
    """

    def __init__(self, folder: Path | None, say: Callable[[str], None] = lambda line: None) -> None:
        self.folder = folder
        self._writes = folder is not None
        self._say = say
        self._where: dict[bytes, tuple[str, int]] = {}
        self._memory: dict[bytes, tuple[Tensor, Tensor]] = {}
        self._seen: set[str] = set()
        self._open: OrderedDict[str, Any] = OrderedDict()
        self.refresh()

    def refresh(self) -> None:
        """Find chunks that were written since; one that cannot be read is removed."""
        if self.folder is None:
            return
        for path in sorted(self.folder.glob("*.safetensors")):
            if path.name in self._seen:
                continue
            try:
                with safe_open(path, "pt") as file:
                    keys = file.get_tensor("keys").numpy()
                    shape = file.get_slice("rows").get_shape()
                    if len(shape) != 2 or shape[0] != len(keys):
                        raise SafetensorError("rows and keys differ in number")
            except FileNotFoundError:  # another process pruned it just now
                continue
            except (SafetensorError, OSError):
                with contextlib.suppress(OSError):
                    path.unlink()
                continue
            self._seen.add(path.name)
            for row, key in enumerate(keys):
                self._where.setdefault(key.tobytes(), (path.name, row))

    def __contains__(self, key: bytes) -> bool:
        return key in self._where or key in self._memory

    def __len__(self) -> int:
        return len(self._where.keys() | self._memory.keys())

    def add(self, keys: Sequence[bytes], rows: Tensor) -> None:
        """Write one chunk of rows ``[n, d]``."""
        packed, scale = pack(rows.float())
        if self.folder is not None and self._writes:
            name = hashlib.sha256(b"".join(keys)).hexdigest()[:32] + ".safetensors"
            marks = torch.from_numpy(np.frombuffer(b"".join(keys), np.uint8).reshape(len(keys), -1).copy())
            try:
                with atomic_path(self.folder / name) as temporary:
                    save_file({"keys": marks, "scale": scale, "rows": packed}, temporary)
                    with temporary.open("rb+") as file:
                        os.fsync(file.fileno())
                self._seen.add(name)
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
        """
        return torch.stack([self._row(key) for key in keys])

    def _row(self, key: bytes) -> Tensor:
        if key in self._memory:
            row, scale = self._memory[key]
            return row.float() * scale
        name, index = self._where[key]
        rows, scales = self._chunk(name)
        return torch.as_tensor(rows[index : index + 1])[0].float() * scales[index]

    def _chunk(self, name: str) -> tuple[Any, Tensor]:
        if name not in self._open:
            if self.folder is None:
                raise KeyError(name)
            file: Any = safe_open(self.folder / name, "pt")
            self._open[name] = (file.get_slice("rows"), file.get_tensor("scale"))
            if len(self._open) > OPEN_FILES:
                self._open.popitem(last=False)
        self._open.move_to_end(name)
        chunk: tuple[Any, Tensor] = self._open[name]
        return chunk

    @contextlib.contextmanager
    def claim(self, mark: bytes) -> Iterator[bool]:
        """Whether nobody else works on the chunk of this mark; it is ours until the block ends or the process does."""
        if self.folder is None or not _locks:
            yield True
            return
        path = self.folder / f"{hashlib.sha256(mark).hexdigest()[:32]}.lock"
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError:
            yield True
            return
        try:
            try:
                _locks.flock(handle, _locks.LOCK_EX | _locks.LOCK_NB)
            except OSError:
                yield False
                return
            yield True
            with contextlib.suppress(OSError):
                path.unlink()
        finally:
            os.close(handle)


try:
    import fcntl as _locks
except ImportError:  # Windows: two processes may do the same chunk twice, with the same outcome
    _locks = None  # type: ignore[assignment]


@dataclass(frozen=True)
class StoreInfo:
    """What ``mgcap cache info`` says of one recipe."""

    folder: Path
    recipe: Recipe
    images: int
    bytes: int
    used: float  #: when it was last opened, in seconds since 1970


class FeatureCache:
    """The stores of all recipes below a folder.

    Args:
        root: ``features`` in the cache folder by default; ``memory`` keeps everything in memory.
        say: Is told when the disk is full.
    """

    def __init__(
        self, root: Path | None = None, memory: bool = False, say: Callable[[str], None] = lambda line: None
    ) -> None:
        self.root = None if memory else (root or cache_dir() / "features")
        self._say = say
        self._stores: dict[str, RowStore] = {}
        self._told = False

    def store(self, recipe: Recipe) -> RowStore:
        """The rows of a recipe; its folder is made if need be."""
        text = json.dumps({"format": FORMAT, **recipe}, sort_keys=True)
        name = hashlib.sha256(text.encode()).hexdigest()[:32]
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
            self._stores[name] = RowStore(folder, self._say_once)
        return self._stores[name]

    def _say_once(self, line: str) -> None:
        if not self._told:
            self._told = True
            self._say(line)

    def info(self) -> list[StoreInfo]:
        """Every recipe with its size, the last used first."""
        found = []
        for path in sorted(self.root.glob("*/recipe.json")) if self.root else ():
            try:
                recipe = json.loads(path.read_text())
                size = sum(f.stat().st_size for f in path.parent.iterdir())
                found.append(StoreInfo(path.parent, recipe, len(RowStore(path.parent)), size, path.stat().st_mtime))
            except (OSError, ValueError):
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
