"""What users add: by a Python file of their own, or (backbones) by a package with an entry point."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from mgcap.backbones.readers import one_line
from mgcap.backbones.record import Backbone
from mgcap.errors import MgcapError

#: Packages give their backbones in this group of entry points.
GROUP = "mgcap.backbones"

Register = Callable[[Backbone], None]


def run_file(path: Path, registries: Sequence[Mapping[str, object]]) -> list[str]:
    """Run a user's Python file, which registers backbones, pooling rules or spectral functions.

    Args:
        path: The file. It is run as any program of the user's.
        registries: Where it may register something.

    Returns:
        The names whose entries are new.

    Raises:
        MgcapError: If it cannot be run, or registers nothing.
    """
    if not path.is_file():
        raise MgcapError(f"there is no file {path}")
    spec = importlib.util.spec_from_file_location(f"mgcap_backbone_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise MgcapError(f"{path} is not a Python file")
    before = [dict(registry) for registry in registries]
    try:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))
    except Exception as error:
        raise MgcapError(f"{path} cannot be used: {type(error).__name__}: {one_line(error)}") from error
    both = zip(before, registries, strict=True)
    added = sorted({name for old, new in both for name in new if new[name] is not old.get(name)})
    if not added:
        raise MgcapError(
            f"{path} registers no backbone, pooling rule or spectral function; it should call "
            "mgcap.backbones.register, or add to mgcap.pooling.RULES or mgcap.spectral.LAYERS"
        )
    return added


def from_entry_points(register: Register) -> list[str]:
    """Register the backbones of installed packages; what goes wrong with one is no trouble for the others.

    Returns:
        One line for each entry point that cannot be used.
    """
    failures = []
    for point in entry_points(group=GROUP):
        try:
            for record in _records(point):
                register(record)
        except Exception as error:  # whatever another package may do
            failures.append(f"the entry point '{point.name}' cannot be used: {one_line(error)}")
    return failures


def _records(point: EntryPoint) -> Iterable[Backbone]:
    found: Any = point.load()
    if not isinstance(found, Backbone) and callable(found):
        found = found()
    records = [found] if isinstance(found, Backbone) else list(found)
    if not all(isinstance(record, Backbone) for record in records):
        raise TypeError("it gives something that is no Backbone")
    return records
