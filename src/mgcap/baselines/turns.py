"""Turns of processes that run side by side: a process that measures its speed has the machine to itself."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.context import SpawnContext
from typing import Any

#: Seconds between two looks at what processes ask for.
POLL_SECONDS = 0.1
#: Stops a process, and lets it run again; Windows has neither, so there nobody waits for others.
_STOP, _CONTINUE = (getattr(signal, name, None) for name in ("SIGSTOP", "SIGCONT"))


@dataclass(frozen=True)
class Turn:
    """Signals between a process and the one that started it.

    Attributes:
        asked: Set by the process for as long as it wants to be alone.
        granted: Set by the other for as long as it is.
    """

    asked: Any
    granted: Any

    @classmethod
    def of(cls, context: SpawnContext) -> Turn:
        """A turn for a process of this context."""
        return cls(context.Event(), context.Event())

    @contextmanager
    def alone(self) -> Iterator[None]:
        """In a process: nobody else runs within the block."""
        self.asked.set()
        self.granted.wait()
        try:
            yield
        finally:
            self.asked.clear()
            while self.granted.is_set():
                time.sleep(POLL_SECONDS / 10)


def give_turns(running: Mapping[str, tuple[Any, Turn]]) -> None:
    """Let each process that asks for it run alone, one after the other, until it is done or dead.

    Args:
        running: Processes by name, each with its turn.
    """
    for name, (process, turn) in running.items():
        if not turn.asked.is_set():
            continue
        others = [other.pid for key, (other, _) in running.items() if key != name and other.is_alive()]
        _send(others, _STOP)
        turn.granted.set()
        try:
            while turn.asked.is_set() and process.is_alive():
                time.sleep(POLL_SECONDS / 10)
        finally:
            turn.granted.clear()
            _send(others, _CONTINUE)


def _send(processes: Sequence[int], number: int | None) -> None:
    if number is None:
        return
    for process in processes:
        try:
            os.kill(process, number)
        except ProcessLookupError:  # it has just ended
            continue
