"""How many pixels may be decoded at once over all requests, so that memory is bounded whatever is sent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Budget:
    """Pixels to share out; who asks first gets them first.

    Args:
        total: Pixels at once. One request gets the whole if it asks for more.
    """

    def __init__(self, total: int) -> None:
        self.total = self.left = total
        self._changed = asyncio.Condition()
        self._turn = asyncio.Lock()

    @asynccontextmanager
    async def take(self, pixels: int) -> AsyncIterator[None]:
        """Wait until there are as many left, and give them back in the end."""
        share = min(pixels, self.total)
        async with self._turn, self._changed:
            await self._changed.wait_for(lambda: self.left >= share)
            self.left -= share
        try:
            yield
        finally:
            self.left += share
            async with self._changed:
                self._changed.notify_all()
