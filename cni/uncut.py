"""Work that must not be cut short: a thread cannot be stopped half-way, and half a frame makes nonsense of the next."""

import asyncio
from collections.abc import Coroutine
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
