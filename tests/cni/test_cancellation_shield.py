"""Work that must not stop half-way ends before a cancellation is raised."""

import asyncio
import gc
import threading
from collections.abc import Awaitable, Callable
from typing import Any

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


async def failing_late(end: asyncio.Event) -> None:
    await end.wait()
    raise OSError("the plugin was stopped")


async def failing_in_a_thread(end: asyncio.Event) -> None:
    def work(stopped: threading.Event) -> None:
        stopped.wait(20)
        raise OSError("the plugin was stopped")

    end.set()
    await until_stopped(work)


@pytest.mark.parametrize("ending_seconds", [None, 0.01], ids=["it is awaited", "it outlives its time"])
@pytest.mark.parametrize("in_thread", [False, True], ids=["task", "thread"])
def test_error_of_work_whose_caller_was_cancelled_is_not_logged(in_thread: bool, ending_seconds: float | None) -> None:
    """As when a daemon ends during a GC, whose plugins are stopped then."""
    reported: list[dict[str, Any]] = []

    async def scenario() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
        end = asyncio.Event()
        task = asyncio.create_task(
            failing_in_a_thread(end) if in_thread else to_the_end(failing_late(end), ending_seconds)
        )
        await asyncio.sleep(0)
        await cancelled(task)
        if ending_seconds is not None and not in_thread:
            await asyncio.wait((task,))
        end.set()
        await asyncio.wait((task,))
        assert task.cancelled()
        del task
        await asyncio.sleep(0.02)
        gc.collect()

    run(scenario)

    assert reported == []
