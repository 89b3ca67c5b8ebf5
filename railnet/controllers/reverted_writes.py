"""Finds objects that are written again and again without having changed: something changes them back each time.

It may be a mutating webhook, another controller, a person's script, or an error of ours. Such a contest ends only if one side stops.
"""

import threading
import time
from collections.abc import Callable, Container, Hashable
from typing import Generic, NamedTuple, TypeVar

WINDOW_SECONDS = 600.0
MOST_WRITES = 10  # of one content in that time
# An object that is to have one content and then another one, again and again, is found, too. More contents are changes of the job's pods.
_CONTENTS = 4

_Owner = TypeVar("_Owner", bound=Hashable)


class _Written(NamedTuple):
    """How often a content was written, and since when that is counted."""

    since: float
    times: int = 0


class RepeatedWrites(Generic[_Owner]):
    """The writes of objects by owner, name and content; any thread may call any method.

    Attributes:
        left_out: how many writes were not permitted.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin without writes; `clock` returns seconds."""
        self._clock = clock
        self._lock = threading.Lock()
        self._written: dict[
            _Owner, dict[str, dict[int, _Written]]
        ] = {}  # by the hash of the content: contents are large
        self.left_out = 0

    def permit(self, owner: _Owner, name: str, content: object) -> bool:
        """Return whether a write of an object is to be done. `wrote` follows when it was done."""
        with self._lock:
            written = self._written.get(owner, {}).get(name, {}).get(hash(content))
            if written is None or self._clock() - written.since >= WINDOW_SECONDS or written.times < MOST_WRITES:
                return True
            self.left_out += 1
            return False

    def wrote(self, owner: _Owner, name: str, content: object) -> None:
        """Count a write that was done."""
        now = self._clock()
        with self._lock:
            contents = self._written.setdefault(owner, {}).setdefault(name, {})
            written = contents.pop(hash(content), _Written(now))
            if now - written.since >= WINDOW_SECONDS:
                written = _Written(now)
            contents[hash(content)] = written._replace(times=written.times + 1)
            if len(contents) > _CONTENTS:
                del contents[next(iter(contents))]

    def forget(self, owner: _Owner, name: str) -> None:
        """Drop an object that is not to be there any more."""
        with self._lock:
            self._written.get(owner, {}).pop(name, None)

    def forget_owner(self, owner: _Owner) -> None:
        """Drop all objects of an owner that has none any more."""
        with self._lock:
            self._written.pop(owner, None)

    def keep(self, owners: Container[_Owner]) -> None:
        """Drop the objects of all other owners."""
        with self._lock:
            self._written = {owner: written for owner, written in self._written.items() if owner in owners}
