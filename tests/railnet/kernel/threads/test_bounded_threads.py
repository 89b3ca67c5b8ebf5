"""Threads of one key: a job waits for those that run if no more can be started, and no job is lost."""

import asyncio
import threading
from errno import EAGAIN

import pytest

from railnet.kernel.threads.bounded_threads import BoundedThreads


def refuse(self: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


def test_job_without_any_thread_is_refused_and_the_next_one_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> int:
        threads = BoundedThreads(1)
        with monkeypatch.context() as limited:
            limited.setattr(threading.Thread, "start", refuse)
            with pytest.raises(OSError, match="limit of processes") as refused:
                await threads.run("card", lambda: 1)
        assert refused.value.errno == EAGAIN
        return await asyncio.wait_for(threads.run("card", lambda: 2), 10)

    assert asyncio.run(main()) == 2


def test_work_to_the_end_is_done_although_its_caller_is_cancelled_before_it_has_begun() -> None:
    release, log = threading.Event(), list[str]()

    async def main() -> bool:
        threads = BoundedThreads(1)
        first = asyncio.create_task(threads.run("card", lambda: release.wait(10)))
        await asyncio.sleep(0)
        second = asyncio.create_task(threads.run_to_the_end("card", lambda: log.append("done")))
        await asyncio.sleep(0)
        second.cancel()
        await asyncio.sleep(0)
        waits = not second.done()
        release.set()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(second, 10)
        return waits and await first

    assert (asyncio.run(main()), log) == (True, ["done"])


def test_work_to_the_end_raises_its_own_error() -> None:
    async def main() -> None:
        await BoundedThreads(1).run_to_the_end("card", lambda: {}["absent"])

    with pytest.raises(KeyError, match="absent"):
        asyncio.run(main())


def test_job_waits_for_a_thread_that_runs_if_no_more_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    release = threading.Event()

    async def main() -> tuple[bool, int]:
        threads = BoundedThreads(2)
        first = asyncio.create_task(threads.run("card", lambda: release.wait(10)))
        await asyncio.sleep(0)
        with monkeypatch.context() as limited:
            limited.setattr(threading.Thread, "start", refuse)
            second = asyncio.create_task(threads.run("card", lambda: 2))
            await asyncio.sleep(0)
        release.set()
        return await asyncio.wait_for(first, 10), await asyncio.wait_for(second, 10)

    assert asyncio.run(main()) == (True, 2)


def test_wait_for_a_job_ends_when_its_seconds_are_over_or_when_the_job_has_ended() -> None:
    async def main() -> tuple[bool, bool, bool]:
        release = threading.Event()
        job = BoundedThreads(1).begin("card", lambda: release.wait(60))
        early = await job.ends_within(0.01)
        release.set()
        return early, await job.ends_within(60), await job.future

    assert asyncio.run(main()) == (False, True, True)
