"""The queue of messages to the API server. A thread of its own sends them, so that no ADD waits for the API server.

A newer message replaces the older one of the same key. A message that could not be sent is sent again, with growing pauses; after
ten minutes it is dropped, and the log says so.
"""

import logging
import random
import threading
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import NamedTuple, Protocol

from railnet.apiserver.client import Absent, Conflict, RequestFailed
from railnet.apiserver.request import Request, Verb
from railnet.backoff import Backoff

_log = logging.getLogger(__name__)
_SAID = 100  # so many of those that are dropped are logged one by one, and then each of this many


class Message(Protocol):
    """A message to the API server. `str()` names it in the log."""

    @property
    def key(self) -> Hashable:
        """Name what the message is about: it replaces an older message of the same key."""

    def requests(self) -> Sequence[Request]:
        """Return the request to send, and further ones, each for the case that the object of the one before is absent.

        May block.
        """


class OutboxPatience(NamedTuple):
    """Seconds: the first pause before a message is sent again, the longest pause, and the age at which it is dropped."""

    first: float = 0.5
    longest: float = 60.0
    give_up: float = 600.0


_PATIENT = OutboxPatience()


@dataclass(slots=True)
class _Waiting:
    message: Message
    since: float
    due: float
    failures: int = 0


class Outbox:
    """At most `room` messages that wait; if there is no room, the oldest of the sender with the most is dropped.

    Attributes:
        lost: how many messages were dropped or refused so far.
    """

    def __init__(
        self,
        send: Callable[[Request], object],
        patience: OutboxPatience = _PATIENT,
        room: int = 256,
        sender: Callable[[Message], Hashable] = lambda _: None,
    ) -> None:
        """Start the thread, which ends with `close`; `send` blocks, and raises RequestFailed.

        `sender` returns what a message is counted to, such as a tenant's namespace; without it, all messages have one sender.
        """
        self._send, self._patience, self._room, self._sender = send, patience, room, sender
        self._backoff = Backoff(patience.first, patience.longest)
        self._waiting: dict[Hashable, _Waiting] = {}
        self._of_sender: dict[Hashable, dict[Hashable, None]] = {}  # the keys of each one's messages, the oldest first
        self._changed = threading.Condition()
        self._closing = False
        self.lost = 0
        # A daemon thread: a process that ends does not wait for an answer.
        self._thread = threading.Thread(target=self._run, name="outbox", daemon=True)
        self._thread.start()

    def put(self, message: Message) -> None:
        """Queue a message; return at once."""
        now = time.monotonic()
        with self._changed:
            if message.key in self._waiting:
                self._take(message.key)
            elif len(self._waiting) >= self._room:
                self._lose(self._take(self._oldest()), f"{self._room} newer messages wait for the API server")
            self._add(_Waiting(message, now, now))
            self._changed.notify()

    def _oldest(self) -> Hashable:
        """Return the key of the oldest message of the sender with the most."""
        most = max(self._of_sender, key=lambda sender: len(self._of_sender[sender]))
        return next(iter(self._of_sender[most]))

    def _add(self, waiting: _Waiting) -> None:
        key = waiting.message.key
        self._waiting[key] = waiting
        self._of_sender.setdefault(self._sender(waiting.message), {})[key] = None

    def _take(self, key: Hashable) -> _Waiting:
        waiting = self._waiting.pop(key)
        sender = self._sender(waiting.message)
        del self._of_sender[sender][key]
        if not self._of_sender[sender]:
            del self._of_sender[sender]
        return waiting

    def close(self, seconds: float) -> None:
        """Send each waiting message once more, for some seconds at most. No message may be put afterwards."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(seconds)

    def _run(self) -> None:
        while (waiting := self._next()) is not None:
            self._try(waiting)

    def _next(self) -> _Waiting | None:
        """Wait for a message that is due, and take it out of the queue; return None when the outbox is closed and empty."""
        with self._changed:
            while True:
                first = min(self._waiting.values(), key=lambda waiting: waiting.due, default=None)
                if first is None:
                    if self._closing:
                        return None
                    self._changed.wait()
                elif self._closing or (left := first.due - time.monotonic()) <= 0:
                    return self._take(first.message.key)
                else:
                    self._changed.wait(left)

    def _try(self, waiting: _Waiting) -> None:
        try:
            self._send_one(waiting.message.requests())
        except (Absent, Conflict) as error:
            _log.info("%s is not sent: its object is gone, or another one has its name (%s)", waiting.message, error)
        except RequestFailed as error:
            if error.temporary:
                self._later(waiting, str(error), error.retry_after)
            else:
                self._lose(waiting, str(error))
        except OSError as error:
            self._later(waiting, str(error), 0.0)
        except Exception as error:  # noqa: BLE001 - one message that cannot be built must not stop those after it
            self._lose(waiting, repr(error))

    def _send_one(self, requests: Sequence[Request]) -> None:
        """Send the first request, and the next one if the object of the one before is absent."""
        *others, last = requests
        for request in others:
            try:
                self._send(request)
            except Absent:
                continue
            return
        try:
            self._send(last)
        except Conflict as error:
            # An object that exists already was created by an earlier try, of which only the answer was lost.
            if last.verb is not Verb.CREATE or error.status != HTTPStatus.CONFLICT:
                raise

    def _later(self, waiting: _Waiting, why: str, at_least: float) -> None:
        now = time.monotonic()
        with self._changed:
            key = waiting.message.key
            if key in self._waiting:
                return  # a newer message replaces this one
            if self._closing or now - waiting.since > self._patience.give_up:
                self._lose(waiting, why)
                return
            if not waiting.failures:
                _log.warning("%s waits, and is sent again: %s", waiting.message, why)
            waiting.failures += 1
            pause = self._backoff.pause(waiting.failures, random.random())  # noqa: S311 - no secret
            waiting.due = now + max(pause, min(at_least, self._patience.longest))
            self._add(waiting)

    def _lose(self, waiting: _Waiting, why: str) -> None:
        self.lost += 1
        if self.lost > _SAID and self.lost % _SAID:  # a tenant can cause thousands, and the metric counts them
            return
        _log.warning("%s is dropped (%d so far): %s", waiting.message, self.lost, why)
