"""The keys that are to be reconciled: each once, never two workers on one key, and a pause after a failure.

The rules are those of client-go's workqueue (k8s.io/client-go/util/workqueue): a key that is added while a worker has it is handed out
again afterwards.
"""

import heapq
import random
import threading
import time
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from railnet.backoff import Backoff

_Key = TypeVar("_Key", bound=Hashable)
_BACKOFF = Backoff(first_seconds=0.5, longest_seconds=60.0)


class WorkQueue(Generic[_Key]):
    """A queue for several producers and several workers; all methods may be called from any thread."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, jitter: Callable[[], float] = random.random
    ) -> None:
        """Begin empty. `clock` returns seconds, `jitter` a random number in [0, 1)."""
        self._clock, self._jitter = clock, jitter
        self._changed = threading.Condition()
        self._due: dict[_Key, float] = {}  # when each key that waits is handed out
        self._order: list[tuple[float, int, _Key]] = []  # a heap; an entry counts only if it agrees with `_due`
        self._count = 0
        self._busy: set[_Key] = set()
        self._failures: dict[_Key, int] = {}
        self._earliest: dict[_Key, float] = {}  # before which the API server wants no request for a key
        self._closed = False

    def __len__(self) -> int:
        """Return how many keys wait, or are with a worker."""
        with self._changed:
            return len(self._due.keys() | self._busy)

    def add(self, key: _Key, seconds: float = 0.0) -> None:
        """Have a key handed out after some seconds, or earlier if it waits for less.

        A key whose last request the API server refused with a Retry-After is not handed out before that.
        """
        with self._changed:
            self._add(key, seconds)

    def get(self) -> _Key | None:
        """Return the next key, and wait for it; None when the queue is closed. `done` or `failed` must follow."""
        with self._changed:
            while not self._closed:
                wait = self._seconds_to_next()
                if wait is not None and wait <= 0:
                    return self._take()
                self._changed.wait(wait)
            return None

    def done(self, key: _Key, again: float | None = None) -> None:
        """Take a key back from its worker; with `again`, hand it out once more after so many seconds."""
        with self._changed:
            self._failures.pop(key, None)
            self._give_back(key)
            if again is not None:
                self._add(key, again)

    def failed(self, key: _Key, seconds: float = 0.0) -> float:
        """Take a key back, and hand it out again after a pause that doubles with each failure. Return the pause.

        `seconds` is what the API server asks for: the pause is not shorter, also if the key is added meanwhile. Without it, a key that
        was or is added comes earlier, because what has changed may be what was wrong.
        """
        with self._changed:
            failures = self._failures[key] = self._failures.get(key, 0) + 1
            pause = max(seconds, _BACKOFF.pause(failures, self._jitter()))
            if seconds > 0:
                earliest = self._earliest[key] = self._clock() + seconds
                if key in self._due:
                    self._due[key] = max(self._due[key], earliest)
            self._give_back(key)
            self._add(key, pause)
            return pause

    def close(self) -> None:
        """Have every `get` return None."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _add(self, key: _Key, seconds: float) -> None:
        due = max(self._clock() + seconds, self._earliest.get(key, 0.0))
        if key in self._due and self._due[key] <= due:
            return
        self._due[key] = due
        self._push(key, due)
        self._changed.notify()

    def _push(self, key: _Key, due: float) -> None:
        self._count += 1  # keys need no order of their own
        heapq.heappush(self._order, (due, self._count, key))

    def _seconds_to_next(self) -> float | None:
        """Return the seconds until a key that is with no worker is due; None if there is none."""
        while self._order:
            due, _, key = self._order[0]
            if self._due.get(key) == due and key not in self._busy:
                return due - self._clock()
            heapq.heappop(self._order)  # it was added again with another time, or `_give_back` puts it back
        return None

    def _take(self) -> _Key:
        _, _, key = heapq.heappop(self._order)
        del self._due[key]
        self._earliest.pop(key, None)
        self._busy.add(key)
        return key

    def _give_back(self, key: _Key) -> None:
        self._busy.discard(key)
        if key in self._due:
            self._push(key, self._due[key])
            self._changed.notify()
