"""A bounded number of delegates at work, those that give something back first, and none that keeps its place by hanging."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from cni.delegate_slots import GOING_ON, NEW, UNDO, DelegateSlots


class Log:
    """Delegates that note when they begin, and work until they are told to end."""

    def __init__(self, places: DelegateSlots) -> None:
        self.places = places
        self.begun: list[str] = []
        self.end = asyncio.Event()

    async def work(self, name: str, urgency: int = NEW) -> None:
        async with self.places.held(urgency):
            self.begun.append(name)
            await self.end.wait()

    async def start(self, *names: str, urgency: int = NEW) -> list[asyncio.Task[None]]:
        tasks = [asyncio.create_task(self.work(name, urgency)) for name in names]
        for _ in range(3):
            await asyncio.sleep(0)
        return tasks


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(scenario(), 20))


def test_no_more_work_at_once_than_there_are_places_and_the_others_are_counted() -> None:
    async def scenario() -> None:
        log = Log(DelegateSlots(2))
        tasks = await log.start(*"abcd")
        assert (log.begun, log.places.waiting) == (["a", "b"], 2)
        log.end.set()
        await asyncio.gather(*tasks)
        assert (log.begun, log.places.waiting) == (list("abcd"), 0)

    run(scenario)


def test_what_gives_back_comes_first_then_who_has_begun_then_the_rest_in_order_of_arrival() -> None:
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


def test_who_is_at_it_for_long_loses_its_place_and_gives_none_back_at_its_end() -> None:
    async def scenario() -> None:
        places = DelegateSlots(1, long_seconds=0.01)
        log = Log(places)
        hung = await log.start("hung")
        async with places.held(NEW):
            pass
        log.end.set()
        await asyncio.gather(*hung)
        log.end.clear()
        tasks = await log.start(*"ab")
        assert log.begun == ["hung", "a"]
        log.end.set()
        await asyncio.gather(*tasks)

    run(scenario)


def test_who_is_given_up_while_it_waits_leaves_its_place_to_the_next() -> None:
    async def scenario() -> None:
        log = Log(DelegateSlots(1))
        first = await log.start("a")
        given_up, waiting = await log.start("b", "c")
        given_up.cancel()
        await asyncio.sleep(0)
        assert log.places.waiting == 1
        log.end.set()
        await asyncio.gather(*first, waiting)
        assert log.begun == ["a", "c"]

    run(scenario)


@pytest.mark.parametrize("cancelled_first", [True, False])
def test_place_that_comes_with_a_cancellation_is_not_lost(cancelled_first: bool) -> None:
    async def scenario() -> None:
        places = DelegateSlots(1)
        log = Log(places)
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
        async with asyncio.timeout(5), places.held(NEW):
            assert places.waiting == 0

    run(scenario)
