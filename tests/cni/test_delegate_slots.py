"""A bounded number of delegates run at once, undo first; a delegate that hangs loses its slot."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from cni.delegate_slots import GOING_ON, NEW, UNDO, DelegateSlots


class Log:
    """Delegates that log when they begin, and run until `end` is set."""

    def __init__(self, slots: DelegateSlots) -> None:
        self.slots = slots
        self.begun: list[str] = []
        self.end = asyncio.Event()

    async def work(self, name: str, urgency: int = NEW) -> None:
        async with self.slots.slot(urgency):
            self.begun.append(name)
            await self.end.wait()

    async def start(self, *names: str, urgency: int = NEW) -> list[asyncio.Task[None]]:
        tasks = [asyncio.create_task(self.work(name, urgency)) for name in names]
        for _ in range(3):
            await asyncio.sleep(0)
        return tasks


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(scenario(), 20))


def test_no_more_delegates_run_than_there_are_slots_and_the_others_are_counted() -> None:
    async def scenario() -> None:
        log = Log(DelegateSlots(2))
        tasks = await log.start(*"abcd")
        assert (log.begun, log.slots.waiting) == (["a", "b"], 2)
        log.end.set()
        await asyncio.gather(*tasks)
        assert (log.begun, log.slots.waiting) == (list("abcd"), 0)

    run(scenario)


def test_undo_comes_first_then_requests_that_have_begun_then_new_ones_in_order_of_arrival() -> None:
    async def scenario() -> None:
        log = Log(DelegateSlots(1))
        tasks = await log.start("first")
        tasks += await log.start("new 1", "new 2")
        tasks += await log.start("going on", urgency=GOING_ON)
        tasks += await log.start("undo", urgency=UNDO)
        log.end.set()
        await asyncio.gather(*tasks)
        assert log.begun == ["first", "undo", "going on", "new 1", "new 2"]

    run(scenario)


def test_delegate_that_runs_for_long_loses_its_slot_and_frees_none_at_its_end() -> None:
    async def scenario() -> None:
        slots = DelegateSlots(1, long_seconds=0.01)
        log = Log(slots)
        hung = await log.start("hung")
        async with slots.slot(NEW):
            pass
        log.end.set()
        await asyncio.gather(*hung)
        log.end.clear()
        tasks = await log.start(*"ab")
        assert log.begun == ["hung", "a"]
        log.end.set()
        await asyncio.gather(*tasks)

    run(scenario)


def test_cancelled_wait_leaves_its_slot_to_the_next() -> None:
    async def scenario() -> None:
        log = Log(DelegateSlots(1))
        first = await log.start("a")
        cancelled, waiting = await log.start("b", "c")
        cancelled.cancel()
        await asyncio.sleep(0)
        assert log.slots.waiting == 1
        log.end.set()
        await asyncio.gather(*first, waiting)
        assert log.begun == ["a", "c"]

    run(scenario)


@pytest.mark.parametrize("cancelled_first", [True, False])
def test_slot_that_is_granted_with_a_cancellation_is_not_lost(cancelled_first: bool) -> None:
    async def scenario() -> None:
        slots = DelegateSlots(1)
        log = Log(slots)
        (first,) = await log.start("a")
        (waiting,) = await log.start("b")
        if cancelled_first:
            waiting.cancel()
            log.end.set()
        else:
            log.end.set()
            await asyncio.sleep(0)
            waiting.cancel()
        await asyncio.wait((first, waiting))
        async with asyncio.timeout(15), slots.slot(NEW):
            assert slots.waiting == 0

    run(scenario)
