"""Progress bars on standard error: those of the command line, and of ``progress=True`` in Python."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console

from mgcap.errors import MgcapError
from mgcap.runtime import Progress, silent

words = Console(stderr=True, highlight=False, soft_wrap=True)


class Bars(Progress):
    """Progress bars with an ETA on standard error; plain lines where that is not a terminal."""

    shown = True
    #: What becomes of lines before they are printed.
    wording: Callable[[str], str] = staticmethod(lambda line: line)

    @contextmanager
    def __call__(self, title: str, total: int | None) -> Iterator[Callable[[int], None]]:
        """Show one step."""
        if not self.shown:
            yield lambda count: None
            return
        if not words.is_terminal:
            start = last = time.monotonic()
            done = found = 0

            def step(count: int) -> None:
                nonlocal last, done, found
                done += count
                now = time.monotonic()
                if now - start < 1:
                    found = done  # what was there before says nothing about the time to go
                if now - last >= 15 and total:
                    last = now
                    left = (now - start) / (done - found) * (total - done)
                    words.print(f"{title}: {done} of {total}, about {left:.0f} s to go")

            yield step
            words.print(f"{title}: done in {time.monotonic() - start:.1f} s")
            return
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
        from rich.progress import Progress as RichProgress

        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("ETA"),
            TimeRemainingColumn(),
        )
        with RichProgress(*columns, console=words) as bars:
            task = bars.add_task(title, total=total)
            yield lambda count: bars.advance(task, count)
            bars.update(task, total=total or 1, completed=total or 1)

    def say(self, line: str) -> None:
        """Print a line on standard error."""
        if self.shown:
            words.print(self.wording(line), markup=False)


bars = Bars()


def as_progress(given: bool | Progress) -> Progress:
    """Bars on standard error for True, nothing for False; an object reports itself.

    Raises:
        MgcapError: If it cannot.
    """
    if given is True:
        return bars
    if isinstance(given, bool):
        return silent
    if not callable(given) or not hasattr(given, "say"):
        raise MgcapError(f"progress: must be True, False or like mgcap.runtime.Progress, not {given!r}")
    return given
