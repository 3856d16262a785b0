"""Names of classes that others gave, as those of a map."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from mgcap.errors import DataError, did_you_mean, missing


def plain_name(name: str) -> str:
    """A name without what people write in different ways: case, spaces, underscores and hyphens."""
    return re.sub(r"[\s_-]+", "", name.casefold())


class Named(NamedTuple):
    """A class of the reference in a CSV file."""

    name: str  #: as it stands in the first of its rows
    targets: tuple[str, ...]  #: the classes of the map that it is; none if the map has not got it


class Merged(NamedTuple):
    """The classes of a map, of which some are one."""

    classes: tuple[str, ...]
    numbers: tuple[int, ...]  #: of the class that each of the map's classes has become
    names: dict[str, str]  #: from plain names to classes, as :func:`match_names` takes them


def read_names(path: str | Path) -> dict[str, Named]:
    """Read a CSV file with the columns ``reference`` and ``map``: from plain names to classes of the map.

    A name in several rows is several classes of the map together; an empty name in the column ``map`` is of a class
    that the map has not.
    """
    path = Path(path).expanduser()
    if not path.is_file():
        raise DataError(missing("file", path))
    found: dict[str, Named] = {}
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            first = file.readline()
            file.seek(0)
            rows = csv.DictReader(file, delimiter=max(",;\t", key=first.count), skipinitialspace=True)
            if not {"reference", "map"} <= {name.strip() for name in rows.fieldnames or ()}:
                raise DataError(f"{path} must have the columns reference and map")
            rows.fieldnames = [name.strip() for name in rows.fieldnames or ()]
            for row in rows:
                name, target = (row["reference"] or "").strip(), (row["map"] or "").strip()
                known = found.get(plain_name(name))
                if known is not None and bool(known.targets) != bool(target):
                    raise DataError(f"{path} says both that the map has '{name}' and that it has not")
                targets = (*(known.targets if known else ()), *([target] if target else []))
                found[plain_name(name)] = Named(known.name if known else name, targets)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path} is not a CSV file: {error}") from error
    return {
        key: Named(name, tuple({plain_name(own): own for own in targets}.values()))
        for key, (name, targets) in found.items()
    }


def merge_classes(classes: Sequence[str], names: Mapping[str, Named] | None = None) -> Merged:
    """Make one of those classes of a map that are one in the reference; it has the reference's name.

    Raises:
        DataError: If the map has not some of them, or they belong to several.
    """
    known, became = {plain_name(name): name for name in classes}, {name: name for name in classes}
    for key, (name, targets) in (names or {}).items():
        for target in targets if len(targets) > 1 else ():
            if (own := known.get(plain_name(target))) is None:
                raise DataError(f"`names` maps '{name}' to '{target}', which the map has not{_hint(target, classes)}")
            if became[own] != own:
                raise DataError(f"`names` merges '{own}' into both '{became[own]}' and '{name}'")
            if key in known and key not in map(plain_name, targets):
                raise DataError(f"`names` merges classes into '{name}', which is another class of the map")
            became[own] = name
    merged = tuple(dict.fromkeys(became[name] for name in classes))
    of_names = {plain_name(name): new for name, new in became.items() if name != new}
    for key, (name, targets) in (names or {}).items():
        first = plain_name(targets[0]) if targets else ""
        of_names[key] = name if len(targets) > 1 else of_names.get(first, targets[0] if targets else "")
    return Merged(merged, tuple(merged.index(became[name]) for name in classes), of_names)


def match_names(
    found: Iterable[str], classes: Sequence[str], names: Mapping[str, str] | None = None, where: str = "the reference"
) -> dict[str, str]:
    """The class of the map for each name; names of classes that the map has not stay as they are.

    Args:
        found: The names.
        classes: Those of the map.
        names: From plain names to classes, of :func:`merge_classes`.
        where: What has these names.

    Raises:
        DataError: If there is none for some, or the map has not what ``names`` says.
    """
    known, names = {plain_name(name): name for name in classes}, names or {}
    matched: dict[str, str] = {}
    lost: list[str] = []
    for name in sorted(set(found)):
        target = names.get(plain_name(name), name)
        if target and plain_name(target) not in known:
            if target != name:
                raise DataError(f"`names` maps '{name}' to '{target}', which the map has not{_hint(target, classes)}")
            lost.append(f"'{name}'{_hint(name, classes)}")
        matched[name] = known.get(plain_name(target), "") if target else name
    if lost:
        shown = ", ".join(lost[:10]) + (f" and {len(lost) - 10} more" if len(lost) > 10 else "")
        raise DataError(
            f"{where} has names that are no class of the map: {shown}; say what they are there with `names`, "
            "a CSV file with the columns reference and map"
        )
    return matched


def _hint(name: str, classes: Sequence[str]) -> str:
    return did_you_mean(name, classes) or did_you_mean(plain_name(name), classes)
