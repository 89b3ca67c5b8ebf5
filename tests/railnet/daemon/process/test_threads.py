"""The daemon's threads when the limit of processes is reached."""

import asyncio
import threading
from collections.abc import Iterator

import pytest

from railnet.daemon.process.threads import Threads


@pytest.fixture
def threads() -> Iterator[Threads]:
    with Threads() as threads:
        yield threads


def full(_: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


def test_work_waits_for_the_thread_that_runs_when_no_other_can_be_started(
    threads: Threads, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(threading.Thread, "start", full)
    done: list[int] = []

    async def main() -> None:
        asyncio.get_running_loop().set_default_executor(threads)
        await asyncio.gather(*(asyncio.to_thread(done.append, number) for number in range(20)))

    # asyncio's own end of the executor starts a thread, which is not what is tried here.
    loop = asyncio.new_event_loop()
    loop.run_until_complete(main())
    loop.close()

    assert sorted(done) == list(range(20))
    assert caplog.text.count("a limit of processes is reached") == 1


def test_threads_are_not_made_where_none_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading.Thread, "start", full)

    with pytest.raises(RuntimeError, match="can't start new thread"):
        Threads()
