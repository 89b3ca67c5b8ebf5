"""Events that controllers write: one object in the cluster for each object, reason and text, also if the leader changes.

The event's name follows from these three, so creating it again is a conflict that changes nothing.
"""

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Literal

from railnet.apiserver.event import Event
from railnet.apiserver.outbox import Message
from railnet.objects.involved_object import InvolvedObject

_COMPONENT = "railnet-controllers"
# An API server keeps an event for an hour (kube-apiserver --event-ttl). What is still true is said again when it is seen again.
_SAID_SECONDS = 3600.0
_REMEMBERED = 10_000


class JobEvents:
    """Queues events; a reconciler that finds the same again says it once. Any thread may call it."""

    def __init__(self, put: Callable[[Message], object], clock: Callable[[], float] = time.monotonic) -> None:
        """Queue by `put`, which is an outbox's; `clock` returns seconds."""
        self._put, self._clock = put, clock
        self._lock = threading.Lock()
        self._said: dict[tuple[InvolvedObject, str, str], float] = {}

    def warning(self, about: InvolvedObject, reason: str, text: str) -> None:
        """Say what is wrong, and what to do. `reason` is one word in UpperCamelCase."""
        self._say(about, reason, text, "Warning")

    def normal(self, about: InvolvedObject, reason: str, text: str) -> None:
        """Say what was done, and why."""
        self._say(about, reason, text, "Normal")

    def _say(self, about: InvolvedObject, reason: str, text: str, of: Literal["Normal", "Warning"]) -> None:
        now, key = self._clock(), (about, reason, text)
        with self._lock:
            if now - self._said.get(key, -_SAID_SECONDS) < _SAID_SECONDS:
                return
            if len(self._said) >= _REMEMBERED:
                del self._said[next(iter(self._said))]
            self._said.pop(key, None)
            self._said[key] = now
        moment = datetime.now(UTC)
        self._put(Event(about, reason, text, text, moment, moment, type=of, component=_COMPONENT))
