"""Finish work that must not stop half-way, in spite of cancellation: a frame on the socket, a system call in a thread."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

from railnet.kernel.threads.bounded_threads import BoundedThreads
from railnet.kernel.waiting import take_outcome

_Result = TypeVar("_Result")
_plugins = BoundedThreads(4)  # their own: a plugin may hang, and no attach and no sweep waits for it


async def to_the_end(
    work: Coroutine[Any, Any, _Result] | asyncio.Task[_Result], ending_seconds: float | None = None
) -> _Result:
    """Await the work. A cancellation is raised only after the work has ended.

    If the work has not ended `ending_seconds` after the cancellation, the work itself is cancelled.
    """
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        task.add_done_callback(take_outcome)
        await asyncio.wait((task,), timeout=ending_seconds)
        task.cancel()  # else it would read from the socket or write to it beside the caller's next work
        raise


async def until_stopped(work: Callable[[threading.Event], _Result]) -> _Result:
    """Do the work in a thread. A cancellation sets the event that the work gets, and is raised after the work has ended."""
    stopped = threading.Event()
    task = asyncio.create_task(_plugins.run("plugins", partial(work, stopped)))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        task.add_done_callback(take_outcome)
        stopped.set()
        await asyncio.wait((task,))
        raise
