"""Waiting for a condition that no event reports: fail after the time limit, or return what is still there.

The loop itself is `railnet.kernel.waiting`; this module adds what callers on a simulated node do about the end of the time.
"""

from collections.abc import Callable
from typing import TypeVar

from railnet.kernel.waiting import block_until

_Item = TypeVar("_Item")


def wait_until(condition: Callable[[], object], seconds: float, what: str, every: float = 0.005) -> None:
    """Wait until `condition` returns something true, and call it every `every` seconds.

    Raises:
        TimeoutError: the condition did not become true in time; `what` names the event that was expected.
    """
    if not block_until(condition, seconds, every):
        raise TimeoutError(f"{what} did not happen within {seconds} s")


def until_empty(look: Callable[[], list[_Item]], seconds: float, every: float) -> list[_Item]:
    """Call `look` every `every` seconds until it returns an empty list; return its last result."""
    found: list[_Item] = []

    def is_empty() -> bool:
        found[:] = look()
        return not found

    block_until(is_empty, seconds, every)
    return found
