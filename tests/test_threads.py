from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import torch

from mgcap.threads import side_by_side


@pytest.fixture(params=[1, 2])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def test_results_come_in_order_and_each_on_one_thread(threads: int) -> None:
    found = side_by_side(lambda n: (n * n, torch.get_num_threads(), threading.current_thread().name), range(20))
    assert [square for square, _, _ in found] == [n * n for n in range(20)]
    assert {own for _, own, _ in found} == {1} and torch.get_num_threads() == threads
    assert (found[0][2] == "MainThread") == (threads == 1)


def test_an_error_reaches_the_caller(threads: int) -> None:
    def fail(number: int) -> int:
        raise KeyError(number)

    with pytest.raises(KeyError):
        side_by_side(fail, [3])


def test_other_threads_keep_their_number() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        side_by_side(abs, [-1])
        found: list[int] = []
        thread = threading.Thread(target=lambda: found.append(torch.get_num_threads()))
        thread.start()
        thread.join()
        assert found == [2] and torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
