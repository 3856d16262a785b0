"""How the text of a Shapefile is written, where it does not say so."""

from __future__ import annotations

import codecs
from pathlib import Path

#: Where the table's header says how long it is, and how text is written; nothing if zero.
_LENGTH, _MARK = slice(8, 10), 29
_HEADER = 32


def text_encoding(path: Path) -> str | None:
    """UTF-8 for a Shapefile that says nothing, if all of its text can be that; GDAL would take it for Latin-1.

    Args:
        path: Any file; None for those that are no Shapefiles, or say it themselves.
    """
    marks, tables = ([path.with_suffix(own) for own in both] for both in ((".cpg", ".CPG"), (".dbf", ".DBF")))
    table = next((own for own in tables if own.is_file()), None)
    if path.suffix.lower() != ".shp" or table is None or any(own.is_file() for own in marks):
        return None
    with table.open("rb") as file:
        head = file.read(_HEADER)
        if len(head) < _HEADER or head[_MARK]:
            return None
        file.seek(int.from_bytes(head[_LENGTH], "little"))
        try:
            for _ in codecs.iterdecode(iter(lambda: file.read(1 << 20), b""), "utf-8"):
                pass
        except UnicodeDecodeError:
            return None
    return "UTF-8"
