"""Fingerprints of rules and backbones that users add: a name alone does not tell changed code from what it was."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Iterator, Mapping
from logging import Logger
from pathlib import PurePath
from types import CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import torch
from torch import Tensor

from mgcap import backbones, pooling, spectral
from mgcap.backbones.pretrained import state_hash
from mgcap.config import MGCAPConfig
from mgcap.model import MGCAP

#: Values whose text says it all.
_PLAIN = str | bytes | int | float | complex | range | PurePath | torch.dtype | torch.device
#: Packages whose functions and classes count by their names, whoever uses them.
_BY_NAME = ("builtins", "mgcap", "torch")


def rule_fingerprints(config: MGCAPConfig) -> dict[str, str]:
    """A fingerprint of the pooling rule, the spectral layer and the backbone of a configuration that are not ours."""
    chosen: dict[str, tuple[Mapping[str, object], Mapping[str, object]]] = {
        "rotation_pooling": (pooling.RULES, pooling.OWN),
        "normalisation": (spectral.LAYERS, spectral.OWN),
    }
    found = {}
    for field, (registry, own) in chosen.items():
        name = getattr(config, field)
        if registry[name] is not own.get(name):
            found[field] = fingerprint(registry[name])
    record = config.record
    if record.name in backbones.BACKBONES and record is not backbones.OWN.get(record.name):
        found["backbone"] = fingerprint((record.build, record.mean, record.std))
    return found


def descriptor_fingerprint(model: MGCAP) -> str:
    """A hash of everything that a model's descriptors depend on, but for the engine that computes them."""
    values = model.config.model_dump(mode="json", exclude={"preset", "num_classes", "gradient"})
    states = {"reduction": model.reduction.state_dict()}
    states |= {f"backbone {number}": backbone.state_dict() for number, backbone in enumerate(model.backbones)}
    hashes = {name: state_hash(state) for name, state in states.items()}
    whole = json.dumps([values, hashes, rule_fingerprints(model.config)], sort_keys=True)
    return hashlib.sha256(whole.encode()).hexdigest()


def fingerprint(value: object) -> str:
    """A hash of functions and classes and of what they are made of: code, constants, defaults, closures, globals.

    What they use of other packages counts by its name.
    """
    return hashlib.sha256("\0".join(_words(value, "", {})).encode()).hexdigest()


def _words(value: Any, home: str, seen: dict[int, object]) -> Iterator[str]:
    """What a value is made of, in words that are the same in every process; ``home`` is the package that uses it."""
    yield f"{type(value).__module__}.{type(value).__qualname__}"
    if value is None or isinstance(value, _PLAIN):
        yield repr(value)
    elif isinstance(value, Tensor):
        yield state_hash({"": value})
    elif isinstance(value, frozenset | set):
        yield from sorted("\0".join(_words(inner, home, seen)) for inner in value)
    elif isinstance(value, FunctionType | type) and (_package(value) in _BY_NAME or home not in ("", _package(value))):
        yield value.__qualname__
    else:
        if not isinstance(value, tuple | CodeType):  # equal ones may or may not be one and the same
            if id(value) in seen:
                return
            seen[id(value)] = value
        name = getattr(value, "__qualname__", "") or getattr(value, "__name__", "")
        yield name if isinstance(name, str) else ""
        home = _package(value) if isinstance(value, FunctionType | type) else home
        for inner in _inside(value):
            yield from _words(inner, home, seen)


def _package(value: FunctionType | type) -> str:
    return str(value.__module__).partition(".")[0]


def _inside(value: Any) -> Iterator[Any]:
    """What else is to be looked at; nothing of modules and loggers, which count by their names."""
    if isinstance(value, tuple | list):
        yield from value
    elif isinstance(value, Mapping):
        yield from value.items()
    elif isinstance(value, CodeType):
        yield from (value.co_code, value.co_names, value.co_consts)
    elif isinstance(value, FunctionType):
        yield from (value.__code__, value.__defaults__, value.__kwdefaults__)
        yield from (cell.cell_contents for cell in value.__closure__ or () if cell != CellType())  # none is empty
        yield from _used(_names(value.__code__), value.__globals__, _package(value))
    elif isinstance(value, type):
        yield value.__bases__
        yield from ((n, v) for n, v in sorted(vars(value).items()) if n[:2] != "__" or isinstance(v, FunctionType))
    elif isinstance(value, staticmethod | classmethod):
        yield value.__func__
    elif isinstance(value, property):
        yield value.fget
    elif isinstance(value, MethodType):
        yield from (value.__func__, value.__self__)
    elif isinstance(value, functools.partial):
        yield from (value.func, value.args, value.keywords)
    elif hasattr(value, "__array_interface__"):
        yield from (value.dtype.str, value.shape, value.tobytes())
    elif not isinstance(value, ModuleType | Logger):
        yield from (object.__getstate__(value), type(value))  # of slots, too


def _names(code: CodeType) -> set[str]:
    """What code calls by name, also within the functions that it makes."""
    return set(code.co_names).union(*(_names(part) for part in code.co_consts if isinstance(part, CodeType)))


def _used(names: set[str], space: Mapping[str, Any], package: str) -> Iterator[tuple[str, Any]]:
    """What some names stand for in a module, and in other modules of its package that are among them."""
    for name in sorted(names & space.keys()):
        yield name, space[name]
        if isinstance(space[name], ModuleType) and space[name].__name__.partition(".")[0] == package:
            yield from _used(names - {name}, vars(space[name]), package)
