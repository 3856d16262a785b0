"""One chunk file of the feature cache: keys, rows in half precision with a scale for each, and a checksum over them.

Rows have a power of two each as their scale: entries below the largest by less than nine orders of magnitude keep a
relative precision of 2**-11. A file that is not as it was written, for whatever reason, is a :class:`DamagedChunk`.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from mgcap.backbones.pretrained import state_hash
from mgcap.data.stream import Item

#: Bytes of a key, see :func:`content_key`.
KEY_BYTES = 32
#: Where the file's metadata has the checksum.
CHECKSUM = "sha256"

_KINDS = {"keys": ("U8", 2), "scale": ("F32", 1), "rows": ("F16", 2)}
#: The bits of a half precision number that are all set in what is not finite.
_EXPONENT = 0x7C00


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


class DamagedChunk(Exception):  # noqa: N818 (nobody sees it: the chunk is computed again)
    """A file is not a whole chunk."""


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


def chunk_name(keys: bytes) -> str:
    """The name of the file that holds the rows of these keys, one after the other."""
    return hashlib.sha256(keys).hexdigest()[:32] + ".safetensors"


def chunk_tensors(keys: bytes, rows: Tensor, scale: Tensor) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Tensors and metadata of a file."""
    stacked = torch.from_numpy(np.frombuffer(keys, np.uint8).reshape(len(rows), -1).copy())
    tensors = {"keys": stacked, "scale": scale, "rows": rows}
    return tensors, {CHECKSUM: state_hash(tensors)}


def _open(path: Path, form: str) -> Any:
    """The file, if its header is a chunk's; FileNotFoundError if there is none."""
    try:
        file: Any = safe_open(path, form)
        parts = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
        shapes = {name: part.get_shape() for name, part in parts.items()}
        if {name: (part.get_dtype(), len(shapes[name])) for name, part in parts.items()} != _KINDS:
            raise DamagedChunk(f"{path} has other tensors than a chunk")
        if CHECKSUM not in (file.metadata() or {}):
            raise DamagedChunk(f"{path} has no checksum")
        if len({shape[0] for shape in shapes.values()}) != 1 or shapes["keys"] != [shapes["keys"][0], KEY_BYTES]:
            raise DamagedChunk(f"{path} has rows, scales and keys that differ in number")
    except FileNotFoundError:
        raise
    except (SafetensorError, OSError, RuntimeError, ValueError) as error:
        raise DamagedChunk(f"{path} cannot be read: {error}") from error
    return file


def read_keys(path: Path) -> tuple[list[bytes], int]:
    """The keys of a chunk and the width of its rows; the rows themselves are not looked at.

    Raises:
        DamagedChunk: If the file cannot be a chunk.
        FileNotFoundError: If it is not there.
    """
    with _open(path, "np") as file:
        keys: bytes = file.get_tensor("keys").tobytes()
        width = int(file.get_slice("rows").get_shape()[1])
    if chunk_name(keys) != path.name:
        raise DamagedChunk(f"{path} has the name of another chunk")
    return [keys[start : start + KEY_BYTES] for start in range(0, len(keys), KEY_BYTES)], width


def read_rows(path: Path, check: bool) -> tuple[Tensor, Tensor]:
    """Rows ``[n, d]`` in half precision and their scales, mapped from the file.

    Args:
        path: The file.
        check: Compare the checksum, which reads all of it.

    Raises:
        DamagedChunk: If it is not as it was written.
        FileNotFoundError: If it is not there.
    """
    with _open(path, "pt") as file:
        tensors = {name: file.get_tensor(name) for name in _KINDS}
        if check:
            if file.metadata()[CHECKSUM] != state_hash(tensors):
                raise DamagedChunk(f"{path} has another checksum")
            bits = tensors["rows"].numpy().view(np.uint16) & _EXPONENT
            if bits.size == 0 or bits.max() == _EXPONENT or not np.isfinite(tensors["scale"].numpy()).all():
                raise DamagedChunk(f"{path} has rows that are not finite")
    return tensors["rows"], tensors["scale"]
