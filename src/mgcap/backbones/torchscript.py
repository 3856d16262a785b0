"""Tensors of a TorchScript archive, without running anything that is in it."""

from __future__ import annotations

import io
import math
import pickle
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mgcap.backbones.readers import one_line
from mgcap.errors import WeightsError
from mgcap.persistence.archives import read_zip


class Node:
    """A module of the archive: its parameters and children by name, and nothing that runs."""


class _TensorsOnly(pickle.Unpickler):
    """Admits float tensors, lists and modules, which become :class:`Node`.

    A tensor takes the bytes that are in the archive, so none can be larger than the archive.
    """

    def __init__(self, data: bytes, storages: Mapping[str, bytes]) -> None:
        super().__init__(io.BytesIO(data))
        self._storages = storages

    def find_class(self, module: str, name: str) -> Any:
        if module == "__torch__" or module.startswith("__torch__."):
            return Node
        allowed = {
            ("torch._utils", "_rebuild_tensor_v2"): _tensor,
            ("torch", "FloatStorage"): "float",  # only named
            ("torch.jit._pickle", "build_intlist"): list,
            ("collections", "OrderedDict"): OrderedDict,
        }
        try:
            return allowed[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"the file names {module}.{name}, which no tensor needs") from None

    def persistent_load(self, pid: Any) -> np.ndarray[Any, Any]:
        kind, numbers, key, _, _ = pid
        if (kind, numbers) != ("storage", "float"):
            raise pickle.UnpicklingError("the file has numbers that are not float32")
        return np.frombuffer(self._storages[key], "<f4")


def _tensor(storage: Any, offset: int, shape: tuple[int, ...], stride: tuple[int, ...], *_: object) -> Tensor:
    """A tensor that is the whole of its storage, in order."""
    wanted = [math.prod(shape[i + 1 :]) for i in range(len(shape))]
    if not isinstance(storage, np.ndarray) or offset != 0 or len(storage) != math.prod(shape) or list(stride) != wanted:
        raise pickle.UnpicklingError("the file has a tensor that is no whole storage")
    return torch.from_numpy(storage.reshape(shape).copy())


def read_modules(data: bytes, name: str) -> Node:
    """The tree of modules of a TorchScript archive.

    Args:
        data: The archive.
        name: What messages call it.

    Raises:
        WeightsError: If it holds anything else.
    """
    members = read_zip(io.BytesIO(data), name, lambda member: member.endswith("/data.pkl") or "/data/" in member)
    storages = {member.rsplit("/", 1)[1]: content for member, content in members.items() if "/data/" in member}
    try:
        (pickled,) = (content for member, content in members.items() if member.endswith("/data.pkl"))
        found = _TensorsOnly(pickled, storages).load()
    except Exception as error:  # an unpickler raises what it likes
        raise WeightsError(f"{name} does not hold modules with tensors: {one_line(error)}") from error
    if not isinstance(found, Node):
        raise WeightsError(f"{name} does not hold a module")
    return found


def walk(node: Node) -> Iterator[dict[str, Tensor]]:
    """The parameters of each module that has some, in the order of the file."""
    values = vars(node)
    if own := {key: value for key, value in values.items() if isinstance(value, Tensor)}:
        yield own
    for child in values.values():
        if isinstance(child, Node):
            yield from walk(child)
