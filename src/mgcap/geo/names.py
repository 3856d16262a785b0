"""Names of classes that others gave, as those of a map."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from mgcap.errors import DataError, did_you_mean, missing


def plain_name(name: str) -> str:
    """A name without what people write in different ways: case, spaces, underscores and hyphens."""
    return re.sub(r"[\s_-]+", "", name.casefold())


def read_names(path: str | Path) -> dict[str, str]:
    """Read a CSV file with the columns ``reference`` and ``map``: from plain names to those of the map.

    An empty name in the column ``map`` is of a class that the map has not.
    """
    path = Path(path).expanduser()
    if not path.is_file():
        raise DataError(missing("file", path))
    found: dict[str, str] = {}
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            first = file.readline()
            file.seek(0)
            rows = csv.DictReader(file, delimiter=max(",;\t", key=first.count), skipinitialspace=True)
            if not {"reference", "map"} <= {name.strip() for name in rows.fieldnames or ()}:
                raise DataError(f"{path} must have the columns reference and map")
            rows.fieldnames = [name.strip() for name in rows.fieldnames or ()]
            for row in rows:
                key, target = plain_name(row["reference"] or ""), (row["map"] or "").strip()
                if found.setdefault(key, target) != target:
                    raise DataError(f"{path} has two classes of the map for '{row['reference']}'")
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path} is not a CSV file: {error}") from error
    return found


def match_names(
    found: Iterable[str], classes: Sequence[str], names: Mapping[str, str] | None = None, where: str = "the reference"
) -> dict[str, str]:
    """The class of the map for each name; names of classes that the map has not stay as they are.

    Args:
        found: The names.
        classes: Those of the map.
        names: Of :func:`read_names`.
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
