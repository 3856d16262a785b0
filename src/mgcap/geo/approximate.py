"""Approximate search in an index of very many cells, by faiss.

Its file stands beside the index, with a code over all its bytes and over what it was made from. Only a file with a code
by the key of this user is opened, as faiss trusts what it reads; any other is made again.
"""

from __future__ import annotations

import hashlib
import hmac
import math
import os
import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mgcap.persistence.files import atomic_path, cache_dir
from mgcap.runtime import Progress
from mgcap.typing import Array

#: Raised when files are made otherwise.
FORMAT = 1
#: Vectors for each list that are looked at to place the lists.
TRAINING = 64
#: Share of the lists that a search looks into, and the fewest.
PROBED, FEWEST = 0.05, 16
#: Bytes of a code, and of the checksum at the end of a part of an index.
CODE, CHECKSUM = 32, 4

Units = Callable[[], Iterable[tuple[Array, Array]]]


@dataclass(frozen=True)
class Approximate:
    """An approximate index by faiss."""

    faiss: Any

    def best(self, queries: Array, count: int) -> tuple[Array, Array]:
        """Numbers of the cells that are most like any of some vectors ``[q, p]`` of length one, and their cosines."""
        scores, cells = self.faiss.search(np.ascontiguousarray(queries, np.float32), min(count, self.faiss.ntotal))
        order = np.lexsort((-scores.ravel(), cells.ravel()))
        own, first = np.unique(cells.ravel()[order], return_index=True)
        best = scores.ravel()[order][first]
        return own[own >= 0], best[own >= 0]


def approximate_index(name: str, units: Units, count: int, progress: Progress) -> Approximate | None:
    """That of an index on this machine, made if there is none; None without faiss, or for an index elsewhere.

    Args:
        name: The index.
        units: Numbers of its cells, and their vectors of length one, in parts.
        count: How many cells it has, of those with data.
        progress: Where to report.
    """
    if "://" in name:
        return None
    try:
        import faiss
    except ImportError:
        progress.say("with faiss this search would be faster: pip install 'mgcap[search]'")
        return None
    folder = Path(name)
    path = folder.with_name(f"{folder.name}.faiss")
    source = _source(folder)
    key = _key()
    found: Any
    if (kept := _read(path, key, source)) is not None:
        found = faiss.deserialize_index(np.frombuffer(kept, np.uint8))
    else:
        found = _build(faiss, units, count, progress)
        content = faiss.serialize_index(found).tobytes()
        try:
            with atomic_path(path) as temporary:
                temporary.write_bytes(_code(key, source, content) + content)
        except OSError as error:
            progress.say(f"{path} cannot be written ({error.strerror}); the next search must make it again")
    found.nprobe = max(FEWEST, math.ceil(PROBED * found.nlist))
    return Approximate(found)


def _build(faiss: Any, units: Units, count: int, progress: Progress) -> Any:
    """Lists of similar vectors, each number in 8 bits."""
    lists = max(1, math.isqrt(count))
    every = max(1, count // (TRAINING * lists))
    sample = np.concatenate([vectors[::every] for _, vectors in units()])
    made = faiss.index_factory(sample.shape[1], f"IVF{lists},SQ8", faiss.METRIC_INNER_PRODUCT)
    with progress("Grouping cells", None):
        made.train(sample)
    for cells, vectors in units():
        made.add_with_ids(vectors, cells.astype(np.int64))
    return made


def _source(folder: Path) -> bytes:
    """A fingerprint of an index: what it says of itself, and the checksums of its parts."""
    found = hashlib.sha256(f"{FORMAT}".encode() + (folder / "zarr.json").read_bytes())
    for name in ("vectors", "valid"):
        for file in sorted(path for path in (folder / name / "c").rglob("*") if path.is_file()):
            size = file.stat().st_size
            found.update(f"{file.relative_to(folder).as_posix()} {size} ".encode())
            with file.open("rb") as opened:
                opened.seek(max(0, size - CHECKSUM))
                found.update(opened.read())
    return found.digest()


def _key() -> bytes:
    """The key of this user, made once."""
    path = cache_dir() / "search.key"
    try:
        if len(kept := path.read_bytes()) == CODE:
            return kept
    except OSError:
        pass
    key = secrets.token_bytes(CODE)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:
            file.write(key)
    except OSError:
        pass  # what is made with this key is made again the next time
    return key


def _code(key: bytes, source: bytes, content: bytes) -> bytes:
    found = hmac.new(key, source, "sha256")
    found.update(content)
    return found.digest()


def _read(path: Path, key: bytes, source: bytes) -> bytes | None:
    """The content of a file that we made of this index, unchanged."""
    try:
        whole = path.read_bytes()
    except OSError:
        return None
    content = whole[CODE:]
    return content if hmac.compare_digest(whole[:CODE], _code(key, source, content)) else None
