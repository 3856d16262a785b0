"""Progress as the library sees it: something to open for each long step, and a place for words."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext


class Progress:
    """Silent progress; the command line has one that draws bars on standard error."""

    def __call__(self, title: str, total: int | None) -> AbstractContextManager[Callable[[int], None]]:
        """Open a step of ``total`` parts (None: unknown); the context gives a function that takes parts done."""
        return nullcontext(lambda done: None)

    def __deepcopy__(self, memo: dict[int, object]) -> Progress:
        return self  # a copied estimator reports to the same place

    def say(self, line: str) -> None:
        """Take one line of words."""


silent = Progress()
