"""Names of classes as names of folders, on any machine."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

from mgcap.errors import DataError

#: What no name of a file may have, here or on Windows.
_BAD = frozenset('/\\:*?"<>|')
#: Names that Windows keeps for devices.
_DEVICES = {"con", "prn", "aux", "nul", *(f"{kind}{number}" for kind in ("com", "lpt") for number in range(1, 10))}
#: Bytes of a name, so that a number and a suffix still fit.
MOST_BYTES = 180


def folder_names(classes: Sequence[str]) -> tuple[str, ...]:
    """A name for the folder of each class: the class itself, where that can be one.

    Raises:
        DataError: If two classes would share a folder, on a machine that does not tell capitals apart either.
    """
    names = tuple(map(_safe, classes))
    known: dict[str, str] = {}
    for own, name in zip(classes, names, strict=True):
        if (other := known.setdefault(name.casefold(), own)) != own:
            raise DataError(f"the classes '{other}' and '{own}' would share the folder '{name}'; rename one of them")
    return names


def _safe(name: str) -> str:
    """A name that is no path, is not hidden, and exists on every system."""
    text = unicodedata.normalize("NFC", name)
    text = "".join("_" if c in _BAD or not c.isprintable() else c for c in text).rstrip(" .").lstrip(" ")
    if text.startswith((".", "__MACOSX")):  # such folders are not looked at
        text = "_" + text[1:] if text.startswith(".") else text[1:]
    if text.split(".")[0].rstrip().casefold() in _DEVICES:
        text = f"{text}_"
    text = text.encode()[:MOST_BYTES].decode(errors="ignore").rstrip(" .")
    return text or "_"
