"""A pytest plugin that fails a test which waits for more than a second in all: a tier in which tests wait is no quick tier.

A wait is what the test has requested of the clock in its own thread: the seconds of a sleep, and the seconds of a time limit
that ran out. Waits at the same time count once. What a sleep took beyond its seconds does not count. Waits of other threads and
of child processes are not seen, but the poll that ends with them is.

A poll is many short waits. It lasts as long as the work that it waits for, which takes long on a busy machine. So short waits
count as far as a processor of the machine was idle meanwhile: then it was no work that the test waited for.
"""

import asyncio
import select
import selectors
import socket
import threading
import time
from collections.abc import Callable, Generator, Iterable
from pathlib import Path
from typing import Any

import pytest

_POLL_SECONDS = 0.25  # what is shorter may be part of a poll
_SELECTORS = (selectors.SelectSelector, selectors.PollSelector, selectors.EpollSelector)
_SOCKET_CALLS = ("_accept", "connect", "recv", "recv_into", "recvfrom", "recvmsg", "send", "sendall", "sendmsg")


def idle_seconds() -> float:
    """Return for how long the machine's processors have been idle since it started, summed over the processors (proc_uptime(5))."""
    return float(Path("/proc/uptime").read_text().split()[1])


class Waits:
    """The waits of the thread that makes this object, each from its begin to the end that was requested, on the monotonic clock."""

    def __init__(self, idle: Callable[[], float] = idle_seconds) -> None:
        self._thread, self._idle = threading.get_ident(), idle
        self.clear()

    def clear(self) -> None:
        self._spans: list[tuple[float, float]] = []
        self._idle_before = self._idle()

    def add(self, begin: float, seconds: float) -> None:
        if threading.get_ident() == self._thread:
            self._spans.append((begin, begin + seconds))

    def seconds(self) -> float:
        """Return the time in which at least one wait went on; of the short waits, no more than processors were idle."""
        long = _covered(span for span in self._spans if span[1] - span[0] >= _POLL_SECONDS)
        return long + min(_covered(self._spans) - long, self._idle() - self._idle_before)

    def record(self, patch: pytest.MonkeyPatch) -> None:
        """Replace what waits by what waits and adds to the waits, until the patch is undone."""
        patch.setattr(time, "sleep", self._sleeping(time.sleep))
        patch.setattr(asyncio, "sleep", self._sleeping_task(asyncio.sleep))
        patch.setattr(threading.Condition, "wait", self._limited(threading.Condition.wait))
        patch.setattr(select, "select", self._selecting(select.select))
        patch.setattr(select, "poll", lambda poll=select.poll: _Poll(self, poll()))
        for selector in _SELECTORS:
            patch.setattr(selector, "select", self._limited(selector.select))
        for call in _SOCKET_CALLS:
            patch.setattr(socket.socket, call, self._socket_call(getattr(socket.socket, call)))

    def _sleeping(self, sleep: Callable[[float], None]) -> Callable[[float], None]:
        def sleep_and_add(seconds: float) -> None:
            begin = time.monotonic()
            sleep(seconds)
            self.add(begin, seconds)

        return sleep_and_add

    def _sleeping_task(self, sleep: Callable[[float, Any], Any]) -> Callable[..., Any]:
        async def sleep_and_add(delay: float, result: object = None) -> object:
            begin = time.monotonic()
            result = await sleep(delay, result)
            self.add(begin, delay)
            return result

        return sleep_and_add

    def _limited(self, wait: Callable[[Any, float | None], Any]) -> Callable[..., Any]:
        def wait_and_add(waiting: object, timeout: float | None = None) -> object:
            begin = time.monotonic()
            happened = wait(waiting, timeout)
            if not happened and timeout is not None and timeout > 0:
                self.add(begin, timeout)
            return happened

        return wait_and_add

    def _selecting(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def select_and_add(rlist: Any, wlist: Any, xlist: Any, timeout: float | None = None) -> Any:
            begin = time.monotonic()
            ready = function(rlist, wlist, xlist, timeout)
            if not any(ready) and timeout:
                self.add(begin, timeout)
            return ready

        return select_and_add

    def _socket_call(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def call_and_add(of: socket.socket, *arguments: object, **options: object) -> object:
            begin = time.monotonic()
            try:
                return call(of, *arguments, **options)
            except TimeoutError:
                self.add(begin, of.gettimeout() or 0)
                raise

        return call_and_add


def _covered(spans: Iterable[tuple[float, float]]) -> float:
    total, reached = 0.0, 0.0
    for begin, end in sorted(spans):
        total += max(0.0, end - max(begin, reached))
        reached = max(reached, end)
    return total


class _Poll:
    """A poll object of `select` that adds to the waits."""

    def __init__(self, waits: Waits, poll: select.poll) -> None:
        self._waits, self._poll = waits, poll

    def __getattr__(self, name: str) -> Any:
        return getattr(self._poll, name)

    def poll(self, timeout: float | None = None) -> list[tuple[int, int]]:
        begin = time.monotonic()
        ready = self._poll.poll(timeout)
        if not ready and timeout is not None and timeout > 0:
            self._waits.add(begin, timeout / 1000)
        return ready


class WaitingLimit:
    """The plugin. `is_limited` chooses the tests that have the limit."""

    def __init__(self, seconds: float, is_limited: Callable[[pytest.Item], bool]) -> None:
        self._seconds, self._is_limited = seconds, is_limited
        self._waits, self._patch = Waits(), pytest.MonkeyPatch()

    def pytest_sessionstart(self) -> None:
        self._waits.record(self._patch)

    def pytest_sessionfinish(self) -> None:
        self._patch.undo()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self) -> Generator[None, None, None]:
        self._waits.clear()
        return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, None, None]:
        yield
        waited = self._waits.seconds()
        if self._is_limited(item) and waited > self._seconds:
            pytest.fail(
                f"the test waits for {waited:.1f} s in all, and for {self._seconds:g} s at most a test may that is not marked slow: "
                "give it a clock, let it wait for an event, or mark it slow",
                pytrace=False,
            )
