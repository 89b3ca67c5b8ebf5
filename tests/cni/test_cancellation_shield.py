"""Work that must not stop half-way ends before a cancellation is raised."""

import asyncio
import threading
from collections.abc import Awaitable, Callable

import pytest

from cni.cancellation_shield import to_the_end, until_stopped


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(scenario(), 20))


async def cancelled(task: asyncio.Task[object]) -> None:
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.sleep(0)


def test_cancellation_is_raised_after_the_work_has_ended() -> None:
    async def scenario() -> None:
        end, log = asyncio.Event(), []

        async def work() -> None:
            await end.wait()
            log.append("ended")

        task = asyncio.create_task(to_the_end(work()))
        await cancelled(task)
        assert (task.done(), log) == (False, [])
        end.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert log == ["ended"]

    run(scenario)


def test_work_that_does_not_end_in_its_time_is_cancelled() -> None:
    async def scenario() -> None:
        work = asyncio.create_task(asyncio.Event().wait())
        task = asyncio.create_task(to_the_end(work, ending_seconds=0.01))
        await cancelled(task)
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait((work,))
        assert work.cancelled()

    run(scenario)


def test_result_and_error_are_the_works_own() -> None:
    async def fail() -> None:
        raise OSError("odd")

    async def scenario() -> None:
        assert await to_the_end(asyncio.sleep(0, "result")) == "result"
        with pytest.raises(OSError, match="odd"):
            await to_the_end(fail())

    run(scenario)


def test_cancellation_sets_the_event_of_work_in_a_thread_and_waits_for_its_end() -> None:
    async def scenario() -> None:
        log: list[str] = []

        def work(stopped: threading.Event) -> None:
            stopped.wait(20)
            log.append("ended" if stopped.is_set() else "not stopped")

        task = asyncio.create_task(until_stopped(work))
        await cancelled(task)
        with pytest.raises(asyncio.CancelledError):
            await task
        assert log == ["ended"]

    run(scenario)
