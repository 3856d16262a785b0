"""Labels and the history of every change of them, in one GeoPackage that QGIS opens.

A change is one SQLite transaction, on the disk before it is acknowledged: a process that is killed loses none. Every
person has labels of their own, so nobody overwrites what another said; where two say different things the cell is in
conflict until someone resolves it. The history is only ever added to, and undo and redo are read from it.
"""

from __future__ import annotations

import datetime
import sqlite3
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from mgcap.errors import DataError
from mgcap.labelling.empty import create_labels
from mgcap.labelling.undoing import Reverted, Steps, remember, revert, undone_steps

#: Seconds that a change waits for the change of another process.
PATIENCE = 30.0
#: Kinds of changes that a person can undo.
UNDOABLE = ("label", "suggested", "clear", "resolve", "load", "load suggested")
#: Those of cells that were suggested because they are hard.
SUGGESTED = ("suggested", "load suggested")


class NotWrittenError(DataError):
    """Labels could not be written just now, as another process was at it, or the disk is full."""


class Cell(NamedTuple):
    """A cell of a raster of the project."""

    raster: str
    row: int
    col: int


class Label(NamedTuple):
    """What one person said of a cell."""

    number: int  #: of the class
    who: str
    at: str
    change: int  #: the number of the change in the history
    resolves: bool  #: whether it was chosen among labels that contradict each other


class Change(NamedTuple):
    """A change that is wanted: what one person says of a cell from now on; None for nothing."""

    cell: Cell
    who: str
    number: int | None
    resolves: bool = False
    hard: bool = False  #: whether the file that it comes from says that the cell was suggested because it is hard
    since: int | None = None  #: the change that the label is as old as; by default it is new


def decided(labels: Sequence[Label]) -> int | None:
    """The class that the labels of one cell amount to; None if they contradict each other.

    Who resolved a conflict is believed until somebody says something else afterwards.
    """
    newest = max(labels, key=lambda own: own.change)
    return newest.number if newest.resolves or len({own.number for own in labels}) == 1 else None


class Store:
    """A file of labels.

    Args:
        path: The GeoPackage; it is made if it is not there.
        outline: Gives the outline of a cell as WKB.
        crs: The coordinate system of the outlines, as WKT; None if there is none.
    """

    def __init__(self, path: Path, outline: Any, crs: str | None) -> None:
        self.path, self.outline = path, outline
        if not path.is_file():
            create_labels(path, crs)
        self._lock = threading.RLock()
        self._database = sqlite3.connect(path, timeout=PATIENCE, isolation_level=None, check_same_thread=False)
        try:
            self._database.execute("PRAGMA synchronous=FULL")
            self._srs = self._check()
        except (sqlite3.DatabaseError, TypeError) as error:
            self._database.close()
            raise DataError(f"{path} is not a file of labels, or damaged: {error}") from error

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._database.close()

    def _check(self) -> int:
        self._database.execute("SELECT id, at, who, actor, raster, row, col, before, after, kind, action, undoes "
                               "FROM history LIMIT 1")  # fmt: skip
        found = self._database.execute(
            "SELECT srs_id FROM gpkg_geometry_columns WHERE table_name = 'labels'"
        ).fetchone()
        return int(found[0])

    def version(self) -> int:
        """The number of the last change; other processes may have made it."""
        with self._lock:
            return int(self._database.execute("SELECT coalesce(max(id), 0) FROM history").fetchone()[0])

    def labels(self, cells: Iterable[Cell] | None = None) -> dict[Cell, list[Label]]:
        """All labels, or those of some cells."""
        found: dict[Cell, list[Label]] = defaultdict(list)
        query = "SELECT raster, row, col, number, who, at, change, resolves FROM labels"
        with self._lock:
            if cells is None:
                rows = self._database.execute(query).fetchall()
            else:
                query += " WHERE raster = ? AND row = ? AND col = ?"
                rows = [row for cell in cells for row in self._database.execute(query, cell)]
        for raster, row, col, number, who, at, change, resolves in rows:
            found[Cell(raster, row, col)].append(Label(number, who, at, change, bool(resolves)))
        return dict(found)

    def touched(self, since: int) -> list[Cell]:
        """Cells that were changed after a change."""
        with self._lock:
            rows = self._database.execute("SELECT DISTINCT raster, row, col FROM history WHERE id > ?", (since,))
            return [Cell(*row) for row in rows.fetchall()]

    def order(self) -> list[tuple[Cell, int]]:
        """Cells with the class that each was last given, in the order in which they were first labelled."""
        with self._lock:
            rows = self._database.execute(
                "SELECT raster, row, col FROM history WHERE after IS NOT NULL "
                "GROUP BY raster, row, col ORDER BY min(id)"
            ).fetchall()
        labels = self.labels()
        cells = [(cell, decided(labels[cell])) for row in rows if (cell := Cell(*row)) in labels]
        return [(cell, number) for cell, number in cells if number is not None]

    def loaded(self) -> dict[tuple[Cell, str], int | None]:
        """What files have said last, by cell and person; loads that were undone do not count."""
        with self._lock:
            undone = undone_steps(self._database)
            rows = self._database.execute(
                "SELECT raster, row, col, who, after, action FROM history WHERE kind LIKE 'load%' ORDER BY id"
            )
            return {(Cell(*row[:3]), row[3]): row[4] for row in rows.fetchall() if row[5] not in undone}

    def suggested(self) -> set[Cell]:
        """Cells that were labelled because they are hard, which say less of the rest."""
        with self._lock:
            rows = self._database.execute(
                "SELECT DISTINCT raster, row, col FROM history WHERE kind IN (?, ?)", SUGGESTED
            )
            return {Cell(*row) for row in rows.fetchall()}

    @contextmanager
    def changing(self) -> Iterator[sqlite3.Connection]:
        """A transaction that no other process can come between; on the disk when it ends."""
        with self._lock:
            try:
                self._database.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError as error:
                raise NotWrittenError(f"the labels cannot be written: {error}") from error
            try:
                yield self._database
                self._database.execute("COMMIT")
            except BaseException as error:
                if self._database.in_transaction:
                    self._database.execute("ROLLBACK")
                if isinstance(error, sqlite3.Error):
                    raise NotWrittenError(f"the labels cannot be written: {error}") from error
                raise

    def is_new(self, name: str) -> bool:
        """Whether what is sent under a name was not written yet; within the transaction that writes it."""
        self._database.execute("CREATE TABLE IF NOT EXISTS sent (name TEXT PRIMARY KEY) WITHOUT ROWID")
        return self._database.execute("INSERT OR IGNORE INTO sent VALUES (?)", (name,)).rowcount == 1

    def change(self, changes: Iterable[Change], by: str, kind: str, names: Mapping[int, str]) -> int:
        """Write changes as one step that can be undone as one; how many labels are not as before.

        Args:
            changes: What shall be.
            by: Who wants it.
            kind: ``label``, ``clear``, ``resolve`` or ``load``; other kinds cannot be undone.
            names: Of the classes, by number.
        """
        with self.changing():
            return self.write(changes, by, kind, names)

    def write(
        self, changes: Iterable[Change], by: str, kind: str, names: Mapping[int, str], undoes: int | None = None
    ) -> int:
        """Like :meth:`change`, within a transaction."""
        at = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
        action, count = None, 0
        find = "SELECT number, resolves, change FROM labels WHERE raster=? AND row=? AND col=? AND who=?"
        for cell, who, number, resolves, hard, since in changes:
            before = self._database.execute(find, (*cell, who)).fetchone() or (None, 0, 0)
            if before[:2] == (number, int(resolves)) and not (resolves and number is not None) and undoes is None:
                continue
            done = self._database.execute(
                "INSERT INTO history (at, who, actor, raster, row, col, before, after, kind, action, undoes) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (at, who, by, *cell, before[0], number, kind + " suggested" * hard, action, undoes),
            )
            change = int(done.lastrowid or 0)
            if action is None:
                action = change
                self._database.execute("UPDATE history SET action = id WHERE id = ?", (change,))
            remember(self._database, change, before[1:], resolves)
            self._put(cell, who, number, names, (at, since or change, int(resolves)))
            count += 1
        if count:
            self._database.execute(
                "UPDATE gpkg_contents SET last_change = ?, min_x = (SELECT min(low_x) FROM extents), "
                "min_y = (SELECT min(low_y) FROM extents), max_x = (SELECT max(high_x) FROM extents), "
                "max_y = (SELECT max(high_y) FROM extents) WHERE table_name = 'labels'",
                (at[:23] + "Z",),
            )
        return count

    def _put(
        self, cell: Cell, who: str, number: int | None, names: Mapping[int, str], said: tuple[str, int, int]
    ) -> None:
        key, (at, change, resolves) = (*cell, who), said
        if number is None:
            self._database.execute("DELETE FROM labels WHERE raster=? AND row=? AND col=? AND who=?", key)
            return
        values = (names[number], number, at, change, resolves)
        done = self._database.execute(
            "UPDATE labels SET class=?, number=?, at=?, change=?, resolves=? WHERE raster=? AND row=? AND col=? "
            "AND who=?",
            (*values, *key),
        )
        if done.rowcount:
            return
        wkb, box = self.outline(cell)
        self._database.execute(
            "INSERT INTO labels (geom, class, number, at, change, resolves, raster, row, col, who) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (_header(self._srs) + wkb, *values, *key),
        )
        known = self._database.execute("SELECT low_x, low_y, high_x, high_y FROM extents").fetchone()
        if known is None:
            self._database.execute("INSERT INTO extents VALUES (?, ?, ?, ?)", box)
            return
        wider = (*map(min, known[:2], box[:2]), *map(max, known[2:], box[2:]))
        if wider != known:
            self._database.execute("UPDATE extents SET low_x=?, low_y=?, high_x=?, high_y=?", wider)

    def rename(self, names: Mapping[int, str]) -> None:
        """Let the labels of classes carry these names; within a transaction."""
        self._database.executemany(
            "UPDATE labels SET class = ? WHERE number = ? AND class != ?",
            [(name, number, name) for number, name in names.items()],
        )

    def of_class(self, number: int) -> list[tuple[Cell, Label]]:
        """The labels of a class, with their cells."""
        return [(cell, own) for cell, labels in self.labels().items() for own in labels if own.number == number]

    def steps(self, by: str) -> Steps:
        """What a person can undo and redo."""
        with self._lock:
            rows = self._database.execute(
                "SELECT action, kind, undoes FROM history WHERE actor = ? AND id = action ORDER BY id", (by,)
            )
            return Steps.of(rows, UNDOABLE)

    def step(self, by: str, back: bool, final: Callable[[int | None], int | None]) -> Reverted | None:
        """What undoes the last step of a person, or does it again; ``final`` says which class a class is by now."""
        steps = self.steps(by)
        chosen = steps.done if back else steps.undone
        return revert(self._database, chosen[-1], back, final) if chosen else None

    def mark(self, by: str, kind: str, step: int) -> None:
        """Write down that a step was undone or done again though no label could follow; within a transaction."""
        at = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
        done = self._database.execute(
            "INSERT INTO history (at, who, actor, raster, row, col, before, after, kind, undoes) "
            "SELECT ?, h.who, ?, h.raster, h.row, h.col, l.number, l.number, ?, ? FROM history h LEFT JOIN labels l "
            "ON l.raster = h.raster AND l.row = h.row AND l.col = h.col AND l.who = h.who WHERE h.id = ?",
            (at, by, kind, step, step),
        )
        self._database.execute("UPDATE history SET action = id WHERE id = ?", (done.lastrowid,))


def _header(srs: int) -> bytes:
    """What stands before WKB in a GeoPackage: version 0, little endian, no envelope."""
    return b"GP\x00\x01" + srs.to_bytes(4, "little", signed=True)
