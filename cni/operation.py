"""What is being done for one request, and what ends it early: its deadline, a DEL of its sandbox, or that nobody waits for it."""

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from cni.host.environment import DEL
from cni.host.errors import TRY_AGAIN, CniError

_Result = TypeVar("_Result")


class Unfinished(CniError):
    """It was ended early and goes on all the same: the kernel does not return from what it was asked."""

    def __init__(self, seconds: float) -> None:
        super().__init__(
            TRY_AGAIN,
            f"the kernel has not answered for {seconds:g} s; what was begun is undone as soon as it does. "
            "Does `dmesg` on this node show hung tasks?",
        )


class Operation:
    """One request's work, from when its time begins. It is interrupted once at most: what it undoes then is not cut short."""

    def __init__(self, seconds: float) -> None:
        """Begin the time: `seconds` for all of it, waiting for its turn included."""
        self._seconds = seconds
        self._deadline = asyncio.get_running_loop().time() + seconds
        self._why: Exception | None = None
        self._early: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task: asyncio.Task[Any] | None = None

    def interrupt(self, why: Exception) -> None:
        """Have it undo what it has done and end with `why`; nothing happens where all has ended, or was interrupted before."""
        if self._why is None:
            self._why = why
            self._early.set_result(None)
            if self._task is not None:
                self._task.cancel()

    async def outcome(self, work: Coroutine[Any, Any, _Result], undo_seconds: float) -> _Result:
        """Do the work, or a part of it after another, and give its result.

        Raises:
            Unfinished: it was interrupted, and `undo_seconds` later it had not ended; `ended` waits for it.
            Exception: what the work raises, or why it was interrupted.
        """
        if self._why is not None:
            work.close()
            raise self._why
        loop = asyncio.get_running_loop()
        task = asyncio.create_task(work)
        self._task = task
        timer = loop.call_at(self._deadline, self.interrupt, self._too_late())
        try:
            await asyncio.wait((task, self._early), return_when=asyncio.FIRST_COMPLETED)
        finally:
            timer.cancel()
        if not task.done():
            await asyncio.wait((task,), timeout=undo_seconds)
        if not task.done():
            raise Unfinished(self._seconds + undo_seconds)
        if task.cancelled() and self._why is not None:
            raise self._why
        result: _Result = task.result()
        return result

    async def ended(self) -> None:
        """Wait until the work has ended, whatever became of it."""
        if self._task is not None:
            await asyncio.wait((self._task,))
            if not self._task.cancelled():
                self._task.exception()  # looked at, so that asyncio does not report it as forgotten

    def _too_late(self) -> CniError:
        return CniError(TRY_AGAIN, f"it took longer than timeouts.add ({self._seconds:g} s) and was undone; try again")


class Operations:
    """What is being done, or waits for its turn, for each sandbox."""

    def __init__(self) -> None:
        self._at: dict[str, list[tuple[str, Operation]]] = {}

    @contextmanager
    def entered(self, key: str, command: str, operation: Operation) -> Iterator[None]:
        """Name an operation until the end of the block; a DEL interrupts all others of its sandbox, which then undo."""
        others = self._at.setdefault(key, [])
        if command == DEL:
            for earlier, other in others:
                if earlier != DEL:
                    other.interrupt(
                        CniError(TRY_AGAIN, f"the runtime asked for a DEL of this sandbox during its {earlier}")
                    )
        mine = (command, operation)
        others.append(mine)
        try:
            yield
        finally:
            others.remove(mine)
            if not others:
                del self._at[key]
