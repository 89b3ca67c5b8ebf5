"""How tests wait for what no event reports: until a condition holds, or the test fails."""

from collections.abc import Callable
from typing import TypeVar

from kernel import waiting

_Found = TypeVar("_Found")
_EVERY_SECONDS = 0.01


def until(condition: Callable[[], _Found], seconds: float, what: str) -> _Found:
    """Block until the condition is true, and return its value; fail with `what` after some seconds."""
    found = waiting.block_until(condition, seconds, _EVERY_SECONDS)
    assert found, f"not within {seconds:g} s: {what}"
    return found


async def until_async(condition: Callable[[], _Found], seconds: float, what: str) -> _Found:
    """Do the same as `until` without blocking the event loop."""
    found = await waiting.until(condition, seconds, _EVERY_SECONDS)
    assert found, f"not within {seconds:g} s: {what}"
    return found
