"""Jobs of bounded threads that have begun before a time limit runs: on a busy machine a thread gets a processor late."""

import asyncio
import threading
from collections.abc import Callable, Hashable
from typing import Any

import pytest

from railnet.kernel.threads import bounded_threads
from railnet.kernel.threads.bounded_threads import BoundedThreads, ThreadCall
from tests.waiting import until

_SECONDS = 60.0


class Hangs:
    """Where jobs hang until `alive` is set; counts those that do."""

    def __init__(self) -> None:
        self.alive, self.hanging = threading.Event(), 0
        self._lock = threading.Lock()

    def wait(self) -> None:
        with self._lock:
            self.hanging += 1
        self.alive.wait(_SECONDS)


class _ReportedJob(ThreadCall):
    """A job with an event that is set when its thread has reported its end to the event loop."""

    def __init__(self, work: Callable[[], Any], future: asyncio.Future[Any]) -> None:
        super().__init__(work, future)
        self.loop, loop, self.reported = self, self.loop, threading.Event()  # type: ignore[assignment]
        self._call_soon = loop.call_soon_threadsafe

    def call_soon_threadsafe(self, *arguments: Any) -> None:
        self._call_soon(*arguments)
        self.reported.set()


def wait_for_begin(monkeypatch: pytest.MonkeyPatch, hangs: Hangs) -> None:
    """Have each job hang or end before its caller goes on, if a thread is free for it: then only what hangs is late."""
    begin = BoundedThreads.begin

    def begun(threads: BoundedThreads, key: Hashable, work: Callable[[], object]) -> ThreadCall:
        before = hangs.hanging
        job = begin(threads, key, work)
        assert isinstance(job, _ReportedJob)
        pool = threads._pools[key]
        if pool._unfinished <= pool._threads:
            until(lambda: job.reported.is_set() or hangs.hanging > before, _SECONDS, "the job hangs or has ended")
        return job

    monkeypatch.setattr(bounded_threads, "ThreadCall", _ReportedJob)
    monkeypatch.setattr(BoundedThreads, "begin", begun)
