"""Images that do not lie in class folders: their classes stand in a CSV file, or in the files' names."""

from __future__ import annotations

import csv
import os
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from mgcap.data.decoding import is_image
from mgcap.errors import DataError
from mgcap.runtime import Progress, silent

#: Suffixes of files that are read as lists.
SUFFIXES = (".csv", ".tsv", ".txt")
#: What the columns of a list may be called.
PATHS, LABELS = ("path", "file", "filename", "image"), ("label", "class")
#: A number at the end of a name, with what stands before it: ``_001``, ``00``, `` (3)``.
_NUMBER = re.compile(r"[\s_.\-]*(?:\d+|\(\d+\))$")
#: Classes that are named at most when it is said how they were found.
SHOWN = 8


def read_list(path: Path, progress: Progress = silent) -> list[tuple[Path, str]]:
    """Files and labels of a CSV file; a file that stands there twice with one label counts once.

    Args:
        path: Text in UTF-8 with a header; columns are set apart by commas, semicolons or tabs. Files are relative to
            its folder.
        progress: Where to report.

    Raises:
        DataError: With one sentence saying what is wrong.
    """
    try:
        rows = list(_rows(path))
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not text in UTF-8; save it as CSV UTF-8") from error
    except csv.Error as error:
        raise DataError(f"{path} is not a CSV file: {error}") from error
    if not rows:
        raise DataError(f"{path} lists no images")
    found: dict[str, tuple[Path, str, int]] = {}
    absent: list[tuple[int, str]] = []
    for line, name, label in rows:
        for empty, what in ((name, "path"), (label, "label")):
            if not empty:
                raise DataError(f"{path}, line {line}: the {what} is empty")
        file = _file(path.parent, name)
        if file is None:
            absent.append((line, name))
            continue
        key = os.path.normpath(file.absolute())
        _, known, before = found.setdefault(key, (file, label, line))
        if known != label:
            raise DataError(f"{path}: {name} is labelled '{known}' in line {before} and '{label}' in line {line}")
    if absent:
        line, name = absent[0]
        count = f"{len(absent)} files that are not there, the first" if len(absent) > 1 else "a file that is not there,"
        raise DataError(f"{path} lists {count} in line {line}: {name} (paths are relative to the folder of the list)")
    if len(found) < len(rows):
        progress.say(f"{path.name}: {len(rows) - len(found)} rows repeat an earlier one and are left out")
    return [(file, label) for file, label, _ in found.values()]


def _rows(path: Path) -> Iterator[tuple[int, str, str]]:
    """Line, file and label of each row that is not empty."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        first = file.readline()
        file.seek(0)
        table = csv.reader(file, delimiter=max(",;\t", key=first.count))
        header = [name.strip() for name in next(table, [])]
        lower = [name.lower() for name in header]
        columns = [next((lower.index(name) for name in names if name in lower), None) for names in (PATHS, LABELS)]
        for column, names in zip(columns, (PATHS, LABELS), strict=True):
            if column is None:
                has = f"it has {', '.join(header)}" if any(header) else "it has no header"
                raise DataError(f"{path} has no column {names[0]} (or {', '.join(names[1:])}); {has}")
        for row in table:
            if any(map(str.strip, row)):
                name, label = (row[c].strip() if c is not None and c < len(row) else "" for c in columns)
                yield table.line_num, name, unicodedata.normalize("NFC", label)


def _file(folder: Path, name: str) -> Path | None:
    """The file that is meant; a list from Windows has its own slashes."""
    for text in (name, name.replace("\\", "/")):
        try:
            if (file := folder / text).is_file():
                return file
        except (OSError, ValueError):  # a name that no file can have
            return None
    return None


def read_names(folder: Path, minimum_classes: int, progress: Progress = silent) -> list[tuple[Path, str]] | None:
    """Images of a flat folder with the classes in their names, as ``forest`` of ``forest_001.tif``.

    Args:
        folder: Holds the images.
        minimum_classes: How many classes there must be.
        progress: Is told which classes were found.

    Returns:
        None if the names say no classes, as when nearly every file would be its own.
    """
    images = sorted(p for p in folder.iterdir() if is_image(p) and p.is_file())
    found = [(path, name_class(path.stem)) for path in images]
    counts = Counter(label for _, label in found)
    single = sum(count == 1 for count in counts.values())
    if len(counts) < minimum_classes or "" in counts or 2 * single > len(counts):
        return None
    # tile_12_34 says row and column, and no class
    if minimum_classes > 1 and len({name_class(label) or label for label in counts}) < 2:
        return None
    listed = ", ".join(f"{label} ({counts[label]})" for label in sorted(counts)[:SHOWN])
    more = f" and {len(counts) - SHOWN} more" if len(counts) > SHOWN else ""
    example = found[0]
    progress.say(
        f"{folder} has no class folders, so classes are taken from the names of its files, as '{example[1]}' of "
        f"{example[0].name}: {listed}{more}"
    )
    return found


def name_class(stem: str) -> str:
    """The name of a file without its number."""
    return unicodedata.normalize("NFC", _NUMBER.sub("", stem)).strip(" _.-")
