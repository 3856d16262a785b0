"""What can be undone and done again, worked out from a history that is only ever added to."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple


@dataclass
class Steps:
    """Numbers of steps.

    Attributes:
        done: That can be undone, the last one first to go.
        undone: That can be done again, the last one first.
    """

    done: list[int] = field(default_factory=list)
    undone: list[int] = field(default_factory=list)

    @classmethod
    def of(cls, rows: Iterable[tuple[int, str, int | None]], undoable: Collection[str]) -> Steps:
        """From the steps of a person in their order.

        Args:
            rows: The number of each step, its kind, and the number of the step that it undoes or does again.
            undoable: Kinds that can be undone.
        """
        self = cls()
        for number, kind, other in rows:
            if kind == "undo" and other is not None:
                self.done = [own for own in self.done if own != other]
                self.undone.append(other)
            elif kind == "redo" and other is not None:
                self.undone = [own for own in self.undone if own != other]
                self.done.append(other)
            elif kind in undoable:
                self.done.append(number)
                self.undone.clear()
        return self


class Reverted(NamedTuple):
    """What undoes a step, or does it again.

    Attributes:
        step: Its number.
        rows: Raster, row, column, person, number of the class from then on, whether that settles a conflict, and the
            change that the label is as old as.
        left: How many labels stay, as they are not what the step left: somebody has said something else since.
    """

    step: int
    rows: list[tuple[str, int, int, str, int | None, bool, int | None]]
    left: int


#: Which changes settle a conflict, and what the label was before: as old as which change, and whether that settled one.
_SETTLING = (
    "CREATE TABLE IF NOT EXISTS settling (id INTEGER PRIMARY KEY, settles INTEGER, settled INTEGER, since INTEGER)"
)


def remember(database: sqlite3.Connection, change: int, before: tuple[int, int], settles: bool) -> None:
    """Keep what the history does not say of a change, so that it can be undone and done again as it was.

    Args:
        database: With the history; within a transaction.
        change: Its number.
        before: Whether the label settled a conflict before, and its change then; 0 where there was none.
        settles: Whether it does from then on.
    """
    database.execute(_SETTLING)
    database.execute("INSERT INTO settling VALUES (?, ?, ?, ?)", (change, settles, before[0], before[1] or None))


def revert(database: sqlite3.Connection, step: int, back: bool, final: Callable[[int | None], int | None]) -> Reverted:
    """What undoes a step, or does it again.

    Args:
        database: With history and labels.
        step: Its number.
        back: Whether it is undone.
        final: The class that labels of a class have by now.
    """
    database.execute(_SETTLING)
    found = database.execute(
        "SELECT h.raster, h.row, h.col, h.who, h.before, h.after, l.number, h.id, h.kind = 'resolve', s.settles, "
        "s.since, s.settled FROM history h LEFT JOIN labels l ON l.raster = h.raster AND l.row = h.row AND "
        "l.col = h.col AND l.who = h.who LEFT JOIN settling s ON s.id = h.id WHERE h.action = ? ORDER BY h.id",
        (step,),
    ).fetchall()
    rows = []
    for *cell, who, before, after, now, change, resolve, settles, since, settled in found:
        there, wanted = (after, before) if back else (before, after)
        if now == final(there):
            old = (bool(settled), since) if back else (bool(resolve if settles is None else settles), change)
            rows.append((*cell, who, final(wanted), *old))
    return Reverted(step, rows[::-1] if back else rows, len(found) - len(rows))


def undone_steps(database: sqlite3.Connection) -> set[int]:
    """Numbers of the steps that are undone."""
    rows = database.execute("SELECT undoes, kind FROM history WHERE undoes IS NOT NULL ORDER BY id")
    return {step for step, kind in dict(rows.fetchall()).items() if kind == "undo"}
