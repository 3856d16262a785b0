"""What the GeoPackage of a stranger says beyond its features: only what it stores is read, and not for long.

A view or a computed column of such a file is a program, which may never end, so files with these are not read at all.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from mgcap.errors import DataError
from mgcap.labelling.store import SUGGESTED

#: What a file of labels of ours has.
OURS = ("class", "who", "raster", "row", "col")
#: Seconds that looking into a file may take, steps of SQLite between two looks at the clock, and cells that are taken.
SECONDS, _STEPS, MOST_CELLS = 10.0, 10_000, 5_000_000
#: Tables of a spatial index are virtual ones; these views some programs write, and nothing reads them.
_COMPUTED = """
SELECT name FROM sqlite_master WHERE type = 'view' AND lower(name) NOT IN
    ('st_spatial_ref_sys', 'spatial_ref_sys', 'st_geometry_columns', 'geometry_columns')
UNION ALL SELECT name FROM sqlite_master WHERE type = 'table' AND rootpage = 0 AND name NOT LIKE 'rtree\\_%' ESCAPE '\\'
UNION ALL SELECT m.name FROM sqlite_master m, pragma_table_xinfo(m.name) c
    WHERE m.type = 'table' AND m.rootpage > 0 AND c.hidden > 1
"""
_LISTED = """
SELECT table_name FROM gpkg_contents c JOIN sqlite_master m ON m.name = c.table_name COLLATE NOCASE
    WHERE m.type IN ('table', 'view') AND m.rootpage = 0
"""


@contextmanager
def _open(path: Path) -> Iterator[sqlite3.Connection]:
    """A file, for reading alone and a limited time."""
    end = time.monotonic() + SECONDS
    with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as database:
        database.execute("PRAGMA trusted_schema=OFF")
        database.set_progress_handler(lambda: time.monotonic() > end, _STEPS)
        yield database


def check_stored(path: Path) -> None:
    """See that all of a GeoPackage is stored; other files, and damaged ones, are for others to refuse.

    Raises:
        DataError: If some of it would be computed.
    """
    if path.suffix.lower() != ".gpkg" or not path.is_file():
        return
    try:
        with _open(path) as database:
            computed = database.execute(_COMPUTED).fetchone()
            listed = database.execute(_LISTED).fetchone()
    except sqlite3.Error as error:
        with path.open("rb") as file:
            if file.read(15) != b"SQLite format 3":
                return
        raise DataError(f"{path.name} cannot be read: {error}") from error
    if found := computed or listed:
        raise DataError(
            f"{path.name} has a view or computed columns ({found[0]}); save its layer into a new file "
            "(in QGIS: Export, Save Features As)"
        )


def is_ours(path: Path) -> bool:
    """Whether a file is that of another project."""
    if path.suffix.lower() != ".gpkg" or not path.is_file():
        return False
    try:
        with _open(path) as database:
            known = {row[1] for row in database.execute("PRAGMA table_info(labels)")}
            return set(OURS) <= known and bool(database.execute("PRAGMA table_info(history)").fetchone())
    except sqlite3.Error:
        return False


def suggested_cells(path: Path) -> set[tuple[str, int, int]]:
    """The cells, by raster, row and column, that the project of a file suggested because they are hard."""
    try:
        with _open(path) as database:
            marks = ",".join("?" * len(SUGGESTED))
            query = f"SELECT DISTINCT raster, row, col FROM history WHERE kind IN ({marks}) LIMIT {MOST_CELLS}"  # noqa: S608 (question marks)
            return {(str(own[0]), int(own[1]), int(own[2])) for own in database.execute(query, SUGGESTED)}
    except (sqlite3.Error, TypeError, ValueError):  # a strange history; its labels may be right
        return set()
