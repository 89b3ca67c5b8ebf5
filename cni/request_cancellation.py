"""One request's work, and what ends it early: its deadline, a DEL of its sandbox, or the end of its executable.

The first of these interrupts the work, which then undoes what it has done. Further ones are ignored, so that nothing
interrupts the undo.
"""

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

from cni.host.environment import DEL
from cni.host.errors import TRY_AGAIN, CniError

_Result = TypeVar("_Result")


class TimeLimits(NamedTuple):
    """Seconds: for one delegate, and for a whole request (`timeouts.delegate`, `timeouts.add`)."""

    delegate: float
    add: float


class Unfinished(CniError):
    """The work was interrupted and still runs: a system call does not return."""

    def __init__(self, seconds: float) -> None:
        super().__init__(
            TRY_AGAIN,
            f"the kernel has not answered for {seconds:g} s; what was begun is undone as soon as it does. "
            "Does `dmesg` on this node show hung tasks?",
        )


class Operation:
    """One request's work. Its time begins when this object is made; waiting for the sandbox's turn is included."""

    def __init__(self, limits: TimeLimits) -> None:
        self._limits = limits
        self._deadline = asyncio.get_running_loop().time() + limits.add
        self._reason: Exception | None = None
        self._news: asyncio.Future[None] | None = None  # awaited by `run`
        self._task: asyncio.Task[Any] | None = None

    def interrupt(self, reason: Exception) -> None:
        """Cancel the work, which undoes what it has done; `run` then raises the reason. Only the first call has an effect."""
        if self._reason is None:
            self._reason = reason
            self._wake()
            if self._task is not None:
                self._task.cancel()

    async def run(self, work: Coroutine[Any, Any, _Result]) -> _Result:
        """Do the work, or one part of it after another, and return its result.

        Raises:
            Unfinished: the work was interrupted and did not end within `limits.delegate`; `ended` waits for it.
            Exception: what the work raises, or the reason of the interruption.
        """
        if self._reason is not None:
            work.close()
            raise self._reason
        loop = asyncio.get_running_loop()
        task = asyncio.create_task(work)
        self._task, self._news = task, loop.create_future()
        task.add_done_callback(self._wake)
        timer = loop.call_at(self._deadline, self._interrupt_late)
        try:
            await self._news
        finally:
            timer.cancel()
        if not task.done():
            await asyncio.wait((task,), timeout=self._limits.delegate)
        if not task.done():
            raise Unfinished(sum(self._limits))
        if task.cancelled() and self._reason is not None:
            raise self._reason
        result: _Result = task.result()
        return result

    async def ended(self) -> None:
        """Wait until the work has ended, with success or not."""
        if self._task is not None:
            await asyncio.wait((self._task,))
            if not self._task.cancelled():
                self._task.exception()  # fetched, so that asyncio does not log it as never retrieved

    def _wake(self, _: object = None) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    def _interrupt_late(self) -> None:
        why = f"it took longer than timeouts.add ({self._limits.add:g} s) and was undone; try again"
        self.interrupt(CniError(TRY_AGAIN, why))


class Operations:
    """The operations of each sandbox that run or wait for the sandbox's turn."""

    def __init__(self) -> None:
        self._of: dict[str, list[tuple[str, Operation]]] = {}

    @contextmanager
    def entered(self, key: str, command: str, operation: Operation) -> Iterator[None]:
        """Register an operation until the end of the block. A DEL interrupts all others of its sandbox that are no DEL."""
        others = self._of.setdefault(key, [])
        if command == DEL:
            for earlier, other in others:
                if earlier != DEL:
                    other.interrupt(
                        CniError(TRY_AGAIN, f"the runtime asked for a DEL of this sandbox during its {earlier}")
                    )
        entry = (command, operation)
        others.append(entry)
        try:
            yield
        finally:
            others.remove(entry)
            if not others:
                del self._of[key]
