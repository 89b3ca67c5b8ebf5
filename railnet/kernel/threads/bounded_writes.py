"""Writes to hardware's files: each has a time limit, and a card that does not carry one out costs itself alone.

Such a write (`sriov_numvfs`, a driver's `bind` and `unbind`) returns when the card's firmware has carried it out. If the firmware
is dead the write never returns, and its thread cannot be ended. So each card has one thread for its writes, and nothing more is
written to a card before a write that hangs has returned.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Hashable
from typing import TypeVar

from railnet.kernel.threads.bounded_reads import DoesNotAnswer
from railnet.kernel.threads.bounded_threads import BoundedThreads, ThreadCall

_Result = TypeVar("_Result")


class BoundedWrites:
    """Writes to cards in threads, to each card one thing after the other."""

    def __init__(self) -> None:
        self._threads = BoundedThreads(1)
        self._turns: dict[Hashable, asyncio.Lock] = {}
        self._hung: dict[Hashable, str] = {}

    @property
    def hung(self) -> Counter[str]:
        """The number of threads that wait for a write that does not return, by card."""
        return Counter(str(card) for card in self._hung)

    async def write(self, card: Hashable, seconds: float, work: Callable[[], _Result]) -> _Result:
        """Do work that writes to a card's files; wait `seconds` for its end, once the card's earlier work has ended.

        Work that has begun is not ended by the limit, nor by a cancellation.

        Raises:
            DoesNotAnswer: the work has not ended in time, or an earlier one has not and still hangs; then this one is not begun.
            Exception: what `work` raises.
        """
        async with self._turns.setdefault(card, asyncio.Lock()):
            if card in self._hung:
                raise DoesNotAnswer(self._hung[card])
            job = self._threads.begin(card, work)
            try:
                await job.ends_within(seconds)
            finally:
                job.abandoned = not job.future.done()
            if job.abandoned:
                self._note_hung(card, seconds, job)
                raise DoesNotAnswer(self._hung[card])
            result: _Result = job.future.result()
            return result

    def _note_hung(self, card: Hashable, seconds: float, job: ThreadCall) -> None:
        self._hung[card] = (
            f"what was written to the files of {card} has not been done in {seconds:g} s, as with dead firmware: look in dmesg, "
            "then reset the device or the node. Nothing more is written to it before that is done"
        )
        job.future.add_done_callback(lambda _: self._hung.pop(card))
