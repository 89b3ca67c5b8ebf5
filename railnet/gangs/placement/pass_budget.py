"""The time of a pass, by namespaces: no tenant makes the gangs of the others wait, however much its own gangs cost."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

_SECONDS = 1.0  # in which a pass serves gangs. To say why those wait that got no place costs about as much again
_MOST_SHARES = 16  # a tenant with many namespaces takes nothing from the others


class PassBudget:
    """What each namespace has used. When the time is over, one that had its share waits for the next pass; the others are still served."""

    def __init__(self, elapsed: Callable[[], float]) -> None:
        """Begin with the whole time; `elapsed` returns the seconds since the pass began."""
        self._elapsed = elapsed
        self._spent: dict[str, float] = {}

    def permits(self, namespace: str) -> bool:
        """Return whether a namespace may be served now."""
        if sum(self._spent.values()) < _SECONDS:
            return True
        namespaces = len(self._spent.keys() | {namespace})
        return self._spent.get(namespace, 0.0) < _SECONDS / min(namespaces, _MOST_SHARES)

    @contextmanager
    def charged_to(self, namespace: str) -> Iterator[None]:
        """Count the time of the block to a namespace."""
        began = self._elapsed()
        try:
            yield
        finally:
            self._spent[namespace] = self._spent.get(namespace, 0.0) + self._elapsed() - began
