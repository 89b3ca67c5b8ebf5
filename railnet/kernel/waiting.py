"""Wait for something that no event reports: look again and again until it is there or the time is over."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

_Found = TypeVar("_Found")


async def until(look: Callable[[], _Found], seconds: float, every: float) -> _Found:
    """Call `look` every `every` seconds until its result is true or `seconds` are over; return the last result.

    `look` is called at least once, on the event loop's thread: it must not block.
    """
    give_up = asyncio.get_running_loop().time() + seconds
    while not (observation := look()) and asyncio.get_running_loop().time() < give_up:  # noqa: ASYNC110 - no event reports it
        await asyncio.sleep(every)
    return observation


async def until_awaited(look: Callable[[], Awaitable[_Found]], seconds: float, every: float) -> _Found:
    """Do the same as `until` with a `look` that is awaited, such as one that reads in a thread."""
    give_up = asyncio.get_running_loop().time() + seconds
    while not (observation := await look()) and asyncio.get_running_loop().time() < give_up:  # noqa: ASYNC110 - as in `until`
        await asyncio.sleep(every)
    return observation


def take_outcome(ended: asyncio.Future[Any]) -> None:
    """Take the outcome of a future or task that has ended and whose caller is gone: else asyncio logs an exception as never retrieved.

    For `add_done_callback`. `asyncio.shield` takes no outcome that comes after its caller was cancelled.
    """
    if not ended.cancelled():
        ended.exception()


def block_until(look: Callable[[], _Found], seconds: float, every: float) -> _Found:
    """Do the same as `until` on a thread that may block."""
    give_up = time.monotonic() + seconds
    while not (observation := look()) and time.monotonic() < give_up:
        time.sleep(every)
    return observation
