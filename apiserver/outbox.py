"""Messages on their way to the API server: sent by a thread of its own, so that nobody ever waits for it.

What is newer takes the place of what it makes obsolete; what fails is tried again, later and later; what cannot be had is
dropped in the end, and the log says so.
"""

import logging
import threading
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import NamedTuple, Protocol

from apiserver.client import Answer, Request

_log = logging.getLogger(__name__)
# A token may just have been replaced; the rest is the API server's, or a webhook's, bad moment.
_TRY_AGAIN = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS})
# There is none; it is being deleted; or it has another UID, or mirrors another static pod: kube-apiserver says 422 to both.
_POD_IS_ANOTHER = frozenset({HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT, HTTPStatus.UNPROCESSABLE_ENTITY})


class Message(Protocol):
    """Something to tell. `str()` names it in the log."""

    @property
    def key(self) -> Hashable:
        """Tell which older message it makes obsolete: the one with the same key."""

    def requests(self) -> Sequence[Request]:
        """Give the request to send, and others, each for when the one before found nothing (404). May block."""


class Patience(NamedTuple):
    """Seconds: the first pause before another try, the longest one, and the age at which a message is dropped."""

    first: float = 0.5
    longest: float = 60.0
    give_up: float = 600.0


_PATIENT = Patience()


@dataclass(slots=True)
class _Waiting:
    message: Message
    since: float
    due: float
    pause: float


class Outbox:
    """At most `room` messages that wait; when there is no room, the oldest is dropped.

    Attributes:
        lost: how many messages were dropped or refused so far.
    """

    def __init__(self, send: Callable[[Request], Answer], patience: Patience = _PATIENT, room: int = 256) -> None:
        """Send by `send`, which blocks and raises OSError; its thread begins at once, and ends with `close`."""
        self._send, self._patience, self._room = send, patience, room
        self._waiting: dict[Hashable, _Waiting] = {}
        self._changed = threading.Condition()
        self._closing = False
        self.lost = 0
        # A daemon thread: a process that ends waits for no answer.
        self._thread = threading.Thread(target=self._run, name="outbox", daemon=True)
        self._thread.start()

    def put(self, message: Message) -> None:
        """Have a message sent soon; returns at once."""
        now = time.monotonic()
        with self._changed:
            if self._waiting.pop(message.key, None) is None and len(self._waiting) >= self._room:
                oldest = self._waiting.pop(next(iter(self._waiting)))
                self._lose(oldest, f"{self._room} newer ones wait for the API server")
            self._waiting[message.key] = _Waiting(message, now, now, self._patience.first)
            self._changed.notify()

    def close(self, seconds: float) -> None:
        """Try once more to send what waits, for some seconds at most; nothing may be put any more."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(seconds)

    def _run(self) -> None:
        while (waiting := self._next()) is not None:
            self._try(waiting)

    def _next(self) -> _Waiting | None:
        """Wait for a message that is due, and take it out; None when all is done."""
        with self._changed:
            while True:
                first = min(self._waiting.values(), key=lambda waiting: waiting.due, default=None)
                if first is None:
                    if self._closing:
                        return None
                    self._changed.wait()
                elif self._closing or (left := first.due - time.monotonic()) <= 0:
                    return self._waiting.pop(first.message.key)
                else:
                    self._changed.wait(left)

    def _try(self, waiting: _Waiting) -> None:
        try:
            answer = self._answer(waiting.message.requests())
        except OSError as error:
            self._later(waiting, f"no answer: {error}", 0.0)
        except Exception as error:  # noqa: BLE001 - one message that cannot be spelled must not stop those after it
            self._lose(waiting, repr(error))
        else:
            self._judge(waiting, answer)

    def _answer(self, requests: Sequence[Request]) -> Answer:
        answer = Answer(HTTPStatus.NOT_FOUND)
        for request in requests:
            answer = self._send(request)
            if request.method == "POST" and answer.status == HTTPStatus.CONFLICT:
                return Answer(HTTPStatus.OK)  # an earlier try was not lost, only its answer
            if answer.status != HTTPStatus.NOT_FOUND:
                break
        return answer

    def _judge(self, waiting: _Waiting, answer: Answer) -> None:
        said = f"{answer.status} {answer.message}"
        if answer.status in _TRY_AGAIN or answer.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            self._later(waiting, said, answer.retry_after or 0.0)
        elif answer.status in _POD_IS_ANOTHER:
            _log.info("%s is not told: the pod is gone, or another one has its name (%s)", waiting.message, said)
        elif answer.status >= HTTPStatus.BAD_REQUEST:
            self._lose(waiting, said)

    def _later(self, waiting: _Waiting, why: str, at_least: float) -> None:
        now = time.monotonic()
        with self._changed:
            key = waiting.message.key
            if key in self._waiting:
                return  # a newer one says it all
            if self._closing or now - waiting.since > self._patience.give_up:
                self._lose(waiting, why)
                return
            if waiting.pause == self._patience.first:
                _log.warning("%s: %s; it is tried again", waiting.message, why)
            waiting.due = now + max(waiting.pause, min(at_least, self._patience.longest))
            waiting.pause = min(waiting.pause * 2, self._patience.longest)
            self._waiting[key] = waiting

    def _lose(self, waiting: _Waiting, why: str) -> None:
        self.lost += 1
        _log.warning("%s is given up: %s (%d so far)", waiting.message, why, self.lost)
