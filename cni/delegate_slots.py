"""Bound the delegates that run at the same time on this node, and choose the next one by urgency.

A slot is for work, not for waiting: a request that waits for a port or for a VF holds none. A delegate that runs for long
either hangs or waits itself, as for its container's lock, and loses its slot. So a delegate that hangs takes an eighth of the
slots for one second only, and any number of such delegates stops nothing.
"""

import asyncio
import heapq
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from cni.timing import timed

# docs/decisions/0025 says why eight, and why a second.
AT_ONCE = 8
_LONG_SECONDS = 1.0

# Urgencies: a DEL returns what other requests wait for; then requests that have begun; then new ones.
UNDO, GOING_ON, NEW = range(3)


class DelegateSlots:
    """A number of slots. Waiting delegates get them by urgency, and those of equal urgency in order of arrival."""

    def __init__(self, count: int = AT_ONCE, long_seconds: float = _LONG_SECONDS) -> None:
        self._free = count
        self._long_seconds = long_seconds
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._arrivals = 0

    @property
    def waiting(self) -> int:
        """Count the delegates that wait for a slot."""
        return sum(not slot.done() for *_, slot in self._waiting)

    @asynccontextmanager
    async def slot(self, urgency: int) -> AsyncIterator[None]:
        """Hold a slot until the end of the block, or for `long_seconds` if the block takes longer."""
        with timed("queue"):
            await self._take(urgency)
        loop, lost = asyncio.get_running_loop(), False

        def lose() -> None:
            nonlocal lost
            lost = True
            self._free_one()

        timer = loop.call_later(self._long_seconds, lose)
        try:
            yield
        finally:
            timer.cancel()
            if not lost:
                self._free_one()

    async def _take(self, urgency: int) -> None:
        if self._free:
            self._free -= 1
            return
        slot: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._arrivals += 1
        heapq.heappush(self._waiting, (urgency, self._arrivals, slot))
        try:
            await slot
        except asyncio.CancelledError:
            if not slot.cancelled():  # the slot was granted in the same round of the loop as the cancellation
                self._free_one()
            raise

    def _free_one(self) -> None:
        while self._waiting:
            *_, slot = heapq.heappop(self._waiting)
            if not slot.done():
                slot.set_result(None)
                return
        self._free += 1
