"""Work that must not be cut short: a thread cannot be stopped half-way, and half a frame makes nonsense of the next."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

_Result = TypeVar("_Result")


async def to_the_end(
    work: Coroutine[Any, Any, _Result] | asyncio.Task[_Result], ending_seconds: float | None = None
) -> _Result:
    """Await work; a cancellation is raised only after it has ended, or after `ending_seconds` more, when it is cut short."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait((task,), timeout=ending_seconds)
        task.cancel()  # else it would read or write beside whoever comes next
        raise


async def until_stopped(work: Callable[[threading.Event], _Result]) -> _Result:
    """Do work in a thread; a cancellation sets its event, and is raised after it has ended, which it then does soon."""
    stopped = threading.Event()
    task = asyncio.create_task(asyncio.to_thread(work, stopped))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        stopped.set()
        await asyncio.wait((task,))
        raise
