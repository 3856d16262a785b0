"""Fingerprints of rules that users add: a name alone does not tell a changed function from what it was before."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Iterator, Mapping
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import torch
from torch import Tensor

from mgcap import pooling, spectral
from mgcap.backbones.pretrained import state_hash
from mgcap.config import MGCAPConfig
from mgcap.model import MGCAP


def rule_fingerprints(config: MGCAPConfig) -> dict[str, str]:
    """A fingerprint of the pooling rule and the spectral layer of a configuration, where they are not ours."""
    chosen: dict[str, tuple[Mapping[str, object], Mapping[str, object]]] = {
        "rotation_pooling": (pooling.RULES, pooling.OWN),
        "normalisation": (spectral.LAYERS, spectral.OWN),
    }
    found = {}
    for field, (registry, own) in chosen.items():
        name = getattr(config, field)
        if registry[name] is not own.get(name):
            found[field] = fingerprint(registry[name])
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
    """A hash of functions and of what they are made of: code, constants, defaults, closures, globals of their module.

    What they use of other modules counts by its name.
    """
    return hashlib.sha256("\0".join(_words(value, {})).encode()).hexdigest()


def _words(value: Any, seen: dict[int, object]) -> Iterator[str]:
    """What a value is made of, in words that are the same in every process."""
    yield f"{type(value).__module__}.{type(value).__qualname__}"
    if value is None or isinstance(value, str | bytes | int | float | complex | torch.dtype):
        yield repr(value)
    elif isinstance(value, Tensor):
        yield state_hash({"": value})
    elif isinstance(value, frozenset | set):
        yield from sorted("\0".join(_words(inner, seen)) for inner in value)
    else:
        if not isinstance(value, tuple | CodeType):  # equal ones may or may not be one and the same
            if id(value) in seen:
                return
            seen[id(value)] = value
        yield getattr(value, "__qualname__", "") or getattr(value, "__name__", "")
        for inner in _inside(value):
            yield from _words(inner, seen)


def _inside(value: Any) -> Iterator[Any]:
    """What else is to be looked at; nothing of classes and modules, which count by their names."""
    if isinstance(value, tuple | list):
        yield from value
    elif isinstance(value, Mapping):
        yield from value.items()
    elif isinstance(value, CodeType):
        yield from (value.co_code, value.co_names, value.co_consts)
    elif isinstance(value, FunctionType):
        yield from (value.__code__, value.__defaults__, value.__kwdefaults__)
        yield from (cell.cell_contents for cell in value.__closure__ or ())
        for name in sorted(_names(value.__code__) & value.__globals__.keys()):
            used = value.__globals__[name]
            foreign = getattr(used, "__module__", value.__module__) != value.__module__
            yield (name, used.__qualname__ if foreign and isinstance(used, FunctionType) else used)
    elif isinstance(value, MethodType):
        yield from (value.__func__, value.__self__)
    elif isinstance(value, functools.partial):
        yield from (value.func, value.args, value.keywords)
    elif hasattr(value, "__array_interface__"):
        yield from (value.dtype.str, value.shape, value.tobytes())
    elif not isinstance(value, type | ModuleType):
        yield getattr(value, "__dict__", {})
        if callable(value):
            yield from (part for part in vars(type(value)).values() if isinstance(part, FunctionType))


def _names(code: CodeType) -> set[str]:
    """What code calls by name, also within the functions that it makes."""
    return set(code.co_names).union(*(_names(part) for part in code.co_consts if isinstance(part, CodeType)))
