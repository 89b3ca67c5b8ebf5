"""Wait in a test for a condition that no event reports. The test fails if the condition does not become true in time."""

from collections.abc import Callable
from typing import TypeVar

from railnet.kernel import waiting

_Found = TypeVar("_Found")
_EVERY_SECONDS = 0.01


def until(condition: Callable[[], _Found], seconds: float, what: str) -> _Found:
    """Block until the condition is true, and return its value.

    Raises:
        AssertionError: it was still false after `seconds`; the message has `what`.
    """
    found = waiting.block_until(condition, seconds, _EVERY_SECONDS)
    assert found, f"not within {seconds:g} s: {what}"
    return found


async def until_async(condition: Callable[[], _Found], seconds: float, what: str) -> _Found:
    """Do the same as `until` without blocking the event loop."""
    found = await waiting.until(condition, seconds, _EVERY_SECONDS)
    assert found, f"not within {seconds:g} s: {what}"
    return found
