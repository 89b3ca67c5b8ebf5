"""Threads for work that may block for ever, a bounded number for each key, such as a card. Blocked work of one key costs no other key.

The threads are daemon threads of their own and not `asyncio.to_thread`'s: those are one small pool for everything, and the
interpreter waits for each of them when it ends.
"""

import asyncio
import queue
import threading
from collections.abc import Callable, Hashable
from contextlib import suppress
from errno import EAGAIN
from typing import Any, TypeVar

_Result = TypeVar("_Result")


class ThreadCall:
    """One call in a thread; `future` has its outcome, and belongs to the event loop that began the job."""

    def __init__(self, work: Callable[[], Any], future: asyncio.Future[Any]) -> None:
        self.work = work
        self.loop = asyncio.get_running_loop()
        self.future = future
        self.started = False
        self.abandoned = False  # an abandoned job that has not started is never run
        self._waiter: asyncio.Future[None] | None = None

    async def ends_within(self, seconds: float) -> bool:
        """Wait until the call has ended, or until the seconds are over; return whether it has ended. One task at a time may wait."""
        if self.future.done():
            return True
        # Not `asyncio.wait`, which takes one more round of the event loop and four times as much of the processor's time.
        loop = asyncio.get_running_loop()
        self._waiter = loop.create_future()
        timer = loop.call_later(seconds, self.wake)
        try:
            await self._waiter
        finally:
            timer.cancel()
        return self.future.done()

    def wake(self) -> None:
        """Have the task that waits look again."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class _KeptFuture(asyncio.Future[Any]):
    """A future that cannot be cancelled: the task that awaits it is cancelled when the future is done (asyncio.Task.cancel)."""

    def cancel(self, msg: Any | None = None) -> bool:  # noqa: ARG002 - as in asyncio.Future
        return False


class BoundedThreads:
    """At most `most` threads for each key. They are started when they are needed, and stay. Used on one event loop."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._pools: dict[Hashable, _Pool] = {}

    async def run(self, key: Hashable, work: Callable[[], _Result]) -> _Result:
        """Do the work in a thread of this key, and return its result or raise its error.

        A cancelled caller does not wait for the thread. Work that has not begun by then is not done.
        """
        job = self.begin(key, work)
        try:
            result: _Result = await job.future
            return result
        finally:
            job.abandoned = True

    async def run_to_the_end(self, key: Hashable, work: Callable[[], _Result]) -> _Result:
        """Do the same as `run`. But a cancellation is raised only after the work has ended, and work that has not begun by then is done."""
        # No shield and no task: they cost one round and two rounds of the event loop.
        result: _Result = await self._put(key, ThreadCall(work, _KeptFuture())).future
        return result

    def begin(self, key: Hashable, work: Callable[[], object]) -> ThreadCall:
        """Begin a job; it starts when a thread of this key is free.

        Raises:
            OSError: EAGAIN, the key has no thread, and none can be started.
        """
        return self._put(key, ThreadCall(work, asyncio.get_running_loop().create_future()))

    def _put(self, key: Hashable, job: ThreadCall) -> ThreadCall:
        self._pools.setdefault(key, _Pool(f"{key}", self._most)).put(job)
        return job


class _Pool:
    """The threads of one key. Only the event loop changes the counts."""

    def __init__(self, name: str, most: int) -> None:
        self._name, self._most = name, most
        self._jobs: queue.SimpleQueue[ThreadCall] = queue.SimpleQueue()
        self._threads = self._unfinished = 0

    def put(self, job: ThreadCall) -> None:
        if self._unfinished >= self._threads and self._threads < self._most:
            self._start_thread()
        self._unfinished += 1
        self._jobs.put(job)

    def _start_thread(self) -> None:
        """Start one more thread. If none can be started, the job waits for those that run."""
        try:
            threading.Thread(target=self._serve, name=self._name, daemon=True).start()
        except RuntimeError as error:
            if not self._threads:
                why = (
                    f"{error}: a limit of processes is reached (`pids.max` of the pod, `ulimit -u`); it is tried again"
                )
                raise OSError(EAGAIN, why) from None
        else:
            self._threads += 1

    def _serve(self) -> None:
        while True:
            job = self._jobs.get()
            result, error = None, None
            if not job.abandoned:
                job.started = True
                try:
                    result = job.work()
                except BaseException as raised:  # noqa: BLE001 - it is raised where the job was begun
                    error = raised
            with suppress(RuntimeError):  # the event loop is closed
                job.loop.call_soon_threadsafe(self._finish, job, result, error)
            del job, result, error  # the queue may be empty for long

    def _finish(self, job: ThreadCall, result: object, error: BaseException | None) -> None:
        self._unfinished -= 1
        if job.future.done():
            return
        if error is None:
            job.future.set_result(result)
        elif job.abandoned:
            job.future.cancel()  # no caller is left that would take the error
        else:
            job.future.set_exception(error)
        job.wake()
