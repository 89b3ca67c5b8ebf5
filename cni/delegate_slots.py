"""How many delegates are at work at once on this node, and who comes next.

A place is for work, not for waiting: who waits for a port or for a VF has none, and a delegate that has been at it for long
hangs, or waits for something itself, such as its container's lock, and loses its place. So a delegate that hangs takes an eighth
of the places for a second and no more, and any number of them ends nothing.
"""

import asyncio
import heapq
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from cni.timing import stage

# docs/decisions/0025 says why eight, and why a second.
AT_ONCE = 8
_LONG_SECONDS = 1.0

UNDO, GOING_ON, NEW = range(3)  # urgencies: who gives back what others wait for, who has begun, and the rest


class DelegateSlots:
    """A number of places; those who wait get them by urgency, and among equals in order of arrival."""

    def __init__(self, count: int = AT_ONCE, long_seconds: float = _LONG_SECONDS) -> None:
        self._free = count
        self._long_seconds = long_seconds
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._arrivals = 0

    @property
    def waiting(self) -> int:
        """How many wait for a place."""
        return sum(not place.done() for *_, place in self._waiting)

    @asynccontextmanager
    async def held(self, urgency: int) -> AsyncIterator[None]:
        """Have a place until the end of the block, or until it was held for long."""
        with stage("queue"):
            await self._place(urgency)
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

    async def _place(self, urgency: int) -> None:
        if self._free:
            self._free -= 1
            return
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._arrivals += 1
        heapq.heappush(self._waiting, (urgency, self._arrivals, place))
        try:
            await place
        except asyncio.CancelledError:
            if not place.cancelled():  # it came in the very round in which it was given up
                self._free_one()
            raise

    def _free_one(self) -> None:
        while self._waiting:
            *_, place = heapq.heappop(self._waiting)
            if not place.done():
                place.set_result(None)
                return
        self._free += 1
