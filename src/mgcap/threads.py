"""Small computations side by side, on one thread each.

Several threads on one small matrix wait for each other more than they compute: twice as slow on an idle machine, and
many times on a busy one, where one of them is always interrupted.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TypeVar

import torch

S = TypeVar("S")
T = TypeVar("T")


@cache
def _pool(process: int) -> ThreadPoolExecutor:
    """Threads that compute alone; a child process makes its own."""
    return ThreadPoolExecutor(os.cpu_count() or 1, "mgcap", initializer=lambda: torch.set_num_threads(1))


def side_by_side(function: Callable[[S], T], items: Iterable[S]) -> list[T]:
    """Results of a function, which must not call this one, for each item, in order."""
    if torch.get_num_threads() == 1:
        return [function(item) for item in items]
    return list(_pool(os.getpid()).map(function, items))
