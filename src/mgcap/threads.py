"""Small computations side by side, on one thread each.

Several threads on one small matrix wait for each other more than they compute: twice as slow on an idle machine, and
many times on a busy one, where one of them is always interrupted.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from threading import Barrier
from typing import TypeVar

import torch

S = TypeVar("S")
T = TypeVar("T")


@cache
def _pool(process: int) -> ThreadPoolExecutor:
    """Threads that compute alone; a child process makes its own."""
    count = os.cpu_count() or 1
    before = torch.get_num_threads()
    ready = Barrier(count + 1)
    pool = ThreadPoolExecutor(count, "mgcap", initializer=_compute_alone)
    for _ in range(count):
        pool.submit(ready.wait)
    ready.wait()
    torch.set_num_threads(before)  # what the threads said of themselves is also what new threads begin with
    return pool


def _compute_alone() -> None:
    torch.set_num_threads(1)
    torch.get_num_threads()  # a thread takes the number over when it first asks for it


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch compute on one thread within the block: sums over several depend on their number."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def side_by_side(function: Callable[[S], T], items: Iterable[S]) -> list[T]:
    """Results of a function, which must not call this one, for each item, in order."""
    if torch.get_num_threads() == 1:
        return [function(item) for item in items]
    return list(_pool(os.getpid()).map(function, items))
