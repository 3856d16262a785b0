"""What can be undone and done again, worked out from a history that is only ever added to."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field


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
