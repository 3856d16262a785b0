from __future__ import annotations

import asyncio

from mgcap.serve.budget import Budget


def test_no_more_is_out_than_there_is_and_first_come_first_served() -> None:
    budget = Budget(10)
    out, most, order = 0, 0, []

    async def take(number: int, pixels: int) -> None:
        nonlocal out, most
        async with budget.take(pixels):
            out += min(pixels, 10)
            most = max(most, out)
            order.append(number)
            await asyncio.sleep(0.01)
            out -= min(pixels, 10)

    async def run() -> None:
        await asyncio.wait_for(asyncio.gather(*(take(n, p) for n, p in enumerate((4, 7, 3, 100, 1, 10)))), 5)

    asyncio.run(run())
    assert most <= 10
    assert order == sorted(order)
    assert budget.left == 10


def test_who_gives_up_gives_back() -> None:
    async def run() -> int:
        budget = Budget(10)
        async with budget.take(8):
            waiting = asyncio.create_task(_take(budget))
            await asyncio.sleep(0)
            waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        async with asyncio.timeout(1), budget.take(10):
            return budget.left

    assert asyncio.run(run()) == 0


async def _take(budget: Budget) -> None:
    async with budget.take(5):
        raise AssertionError("there was no room")
