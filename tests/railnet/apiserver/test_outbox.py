"""The messages that wait for the API server: replaced, sent again, bounded in number, dropped, and never delaying an ADD."""

import itertools
import threading
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from railnet.apiserver import outbox as outbox_module
from railnet.apiserver.client import Absent, Conflict, RequestFailed
from railnet.apiserver.outbox import Outbox, OutboxPatience
from railnet.apiserver.request import ApiObject, Request, Verb

QUICK = OutboxPatience(first=0.01, longest=0.02, give_up=20)
_SECONDS = 20.0


@dataclass(frozen=True)
class Note:
    key: Hashable
    text: str
    verbs: tuple[Verb, ...] = (Verb.PATCH,)

    def requests(self) -> Sequence[Request]:
        return [Request(verb, ApiObject("v1", "pods", "p", "ml"), {"text": self.text}) for verb in self.verbs]


@dataclass(frozen=True)
class Sent:
    """A message of a sender."""

    sender: str
    number: int

    def __str__(self) -> str:
        return f"{self.sender} {self.number}"

    @property
    def key(self) -> Hashable:
        return str(self)

    def requests(self) -> Sequence[Request]:
        return Note(self.key, str(self)).requests()


def failed(status: int) -> RequestFailed:
    kind = {404: Absent, 409: Conflict, 422: Conflict}.get(status, RequestFailed)
    return kind(f"HTTP {status}", status)


UNREACHABLE = RequestFailed("connection refused")


class Wire:
    """Fails as prepared, one failure for each request, then succeeds; holds all answers back while `open` is not set."""

    def __init__(self, *failures: RequestFailed) -> None:
        self.failures = list(failures)
        self.sent: list[str] = []
        self.begun = threading.Event()
        self.open = threading.Event()
        self.open.set()

    def send(self, request: Request) -> None:
        self.begun.set()
        assert self.open.wait(_SECONDS)
        assert isinstance(request.body, dict)
        self.sent.append(f"{request.method} {request.body['text']}")
        if self.failures:
            raise self.failures.pop(0)


def wait_until(holds: Callable[[], bool]) -> None:
    give_up = time.monotonic() + _SECONDS
    while not holds():
        assert time.monotonic() < give_up
        time.sleep(0.005)


def sent(wire: Wire, *notes: Note, expected: int) -> tuple[list[str], int]:
    """Send notes until so many requests were made; return the requests, and how many notes were lost."""
    outbox = Outbox(wire.send, QUICK)
    for note in notes:
        outbox.put(note)
    wait_until(lambda: len(wire.sent) >= expected)
    outbox.close(_SECONDS)
    return wire.sent, outbox.lost


def test_message_is_sent_once() -> None:
    assert sent(Wire(), Note("a", "one"), expected=1) == (["PATCH one"], 0)


def test_put_returns_while_the_api_server_hangs() -> None:
    wire = Wire()
    wire.open.clear()
    outbox = Outbox(wire.send, QUICK)
    outbox.put(Note("a", "one"))
    assert wire.begun.wait(_SECONDS)
    outbox.put(Note("b", "two"))  # returns, though nothing is answered
    before = list(wire.sent)

    wire.open.set()
    outbox.close(_SECONDS)

    assert before == []
    assert wire.sent == ["PATCH one", "PATCH two"]


def test_newer_message_replaces_the_older_one_of_the_same_key() -> None:
    wire = Wire()
    wire.open.clear()
    outbox = Outbox(wire.send, QUICK)
    outbox.put(Note("busy", "first"))
    assert wire.begun.wait(_SECONDS)
    for text in ("one", "two", "three"):
        outbox.put(Note("a", text))

    wire.open.set()
    outbox.close(_SECONDS)

    assert wire.sent == ["PATCH first", "PATCH three"]
    assert outbox.lost == 0


def test_failed_message_is_not_sent_again_if_a_newer_one_replaces_it() -> None:
    wire = Wire(UNREACHABLE)
    wire.open.clear()
    outbox = Outbox(wire.send, QUICK)
    outbox.put(Note("a", "old"))
    assert wire.begun.wait(_SECONDS)
    outbox.put(Note("a", "new"))

    wire.open.set()
    wait_until(lambda: len(wire.sent) == 2)
    outbox.close(_SECONDS)

    assert wire.sent == ["PATCH old", "PATCH new"]
    assert outbox.lost == 0


@pytest.mark.parametrize("status", [0, 401, 408, 429, 500, 503])
def test_message_is_sent_again_after_a_temporary_failure(status: int) -> None:
    assert sent(Wire(failed(status), failed(status)), Note("a", "one"), expected=3) == (["PATCH one"] * 3, 0)


@pytest.mark.slow
def test_pauses_grow_up_to_the_longest_and_respect_retry_after() -> None:
    moments: list[float] = []

    def send(request: Request) -> None:
        moments.append(time.monotonic())
        if len(moments) == 4:
            raise RequestFailed("too many requests", 429, retry_after=0.3)
        if len(moments) < 6:
            raise failed(503)

    outbox = Outbox(send, OutboxPatience(first=0.05, longest=0.5, give_up=20))
    outbox.put(Note("a", "one"))
    wait_until(lambda: len(moments) == 6)
    outbox.close(_SECONDS)

    pauses = [later - earlier for earlier, later in itertools.pairwise(moments)]
    at_least = [0.025, 0.05, 0.1, 0.3, 0.25]
    assert all(pause >= least for pause, least in zip(pauses, at_least, strict=True))


@pytest.mark.parametrize("final", [404, 409, 422])
def test_message_about_a_pod_that_is_gone_or_replaced_is_not_lost(final: int) -> None:
    assert sent(Wire(failed(final)), Note("a", "one"), expected=1) == (["PATCH one"], 0)


@pytest.mark.parametrize("refused", [400, 403, 405, 415])
def test_refused_message_is_lost_and_is_not_sent_again(refused: int) -> None:
    assert sent(Wire(failed(refused)), Note("a", "one"), expected=1) == (["PATCH one"], 1)


def test_next_request_of_a_message_is_sent_if_the_object_of_the_one_before_is_absent() -> None:
    note = Note("a", "one", (Verb.PATCH, Verb.CREATE))

    assert sent(Wire(failed(404)), note, expected=2) == (["PATCH one", "POST one"], 0)
    assert sent(Wire(), note, expected=1) == (["PATCH one"], 0)


def test_second_try_to_create_an_object_that_exists_by_now_is_a_success(caplog: pytest.LogCaptureFixture) -> None:
    wire = Wire(UNREACHABLE, failed(409))

    with caplog.at_level("INFO"):
        assert sent(wire, Note("a", "one", (Verb.CREATE,)), expected=2) == (["POST one"] * 2, 0)

    assert "is not sent" not in caplog.text


def test_facts_that_cannot_be_read_now_are_read_again() -> None:
    class Late(Note):
        def requests(self) -> Sequence[Request]:
            if not late:
                late.append("once")
                raise OSError("the namespace cannot be entered")
            return super().requests()

    late: list[str] = []

    assert sent(Wire(), Late("a", "one"), expected=1) == (["PATCH one"], 0)


def test_message_is_dropped_when_it_is_old(monkeypatch: pytest.MonkeyPatch) -> None:
    wire = Wire(*[failed(503)] * 1000)
    readings = itertools.count()  # of a clock that advances when it is read: the load of this machine decides nothing
    monkeypatch.setattr(outbox_module, "time", SimpleNamespace(monotonic=lambda: next(readings)))
    outbox = Outbox(wire.send, OutboxPatience(first=0.01, longest=0.01, give_up=20))
    outbox.put(Note("a", "one"))

    wait_until(lambda: outbox.lost == 1)
    tries = len(wire.sent)
    outbox.put(Note("b", "two"))
    wait_until(lambda: "PATCH two" in wire.sent)
    outbox.close(_SECONDS)

    assert tries > 1
    assert wire.sent.count("PATCH one") == tries


def test_sender_with_the_most_messages_loses_its_oldest_one_when_there_is_no_room() -> None:
    wire = Wire()
    wire.open.clear()
    outbox = Outbox(wire.send, QUICK, room=4, sender=lambda message: str(message).partition(" ")[0])
    outbox.put(Sent("first", 0))
    assert wire.begun.wait(_SECONDS)
    outbox.put(Sent("ml", 0))
    for number in range(100):
        outbox.put(Sent("flood", number))
    outbox.put(Sent("ml", 1))
    wire.open.set()
    outbox.close(_SECONDS)

    assert [text.removeprefix("PATCH ") for text in wire.sent] == ["first 0", "ml 0", "flood 98", "flood 99", "ml 1"]
    assert outbox.lost == 98


def test_message_for_which_another_one_is_dropped_costs_no_look_at_all_of_them(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """All were looked at for each: ten thousand events about one tenant's gangs took the controllers five seconds and more."""
    looked: list[str] = []

    def sender(message: Sent) -> str:
        looked.append(message.sender)
        return message.sender

    wire = Wire()
    wire.open.clear()
    outbox = Outbox(wire.send, QUICK, room=200, sender=sender)  # type: ignore[arg-type]
    for number in range(1000):
        outbox.put(Sent("many", number))

    assert len(looked) <= 3 * 1000
    assert 799 <= outbox.lost <= 800
    assert len([record for record in caplog.records if "is dropped" in record.message]) == 100 + outbox.lost // 100 - 1
    wire.open.set()
    outbox.close(_SECONDS)


def test_oldest_is_dropped_when_there_is_no_room() -> None:
    wire = Wire()
    wire.open.clear()
    outbox = Outbox(wire.send, QUICK, room=2)
    outbox.put(Note("busy", "first"))
    assert wire.begun.wait(_SECONDS)
    for number in range(4):
        outbox.put(Note(number, str(number)))
    outbox.put(Note(2, "2 anew"))

    wire.open.set()
    outbox.close(_SECONDS)

    assert wire.sent == ["PATCH first", "PATCH 3", "PATCH 2 anew"]
    assert outbox.lost == 2


def test_message_that_cannot_be_built_does_not_stop_those_after_it() -> None:
    class Odd(Note):
        def requests(self) -> Sequence[Request]:
            raise ValueError("the primary network's result cannot be read")

    assert sent(Wire(), Odd("a", "odd"), Note("b", "two"), expected=1) == (["PATCH two"], 1)


def test_failing_message_does_not_delay_another() -> None:
    wire = Wire(failed(503))
    outbox = Outbox(wire.send, OutboxPatience(first=15, longest=15, give_up=20))
    outbox.put(Note("a", "one"))
    wait_until(lambda: wire.sent == ["PATCH one"])
    outbox.put(Note("b", "two"))

    wait_until(lambda: wire.sent == ["PATCH one", "PATCH two"])
    outbox.close(_SECONDS)


def test_close_sends_waiting_messages_once_more_without_a_pause() -> None:
    wire = Wire(failed(503))
    outbox = Outbox(wire.send, OutboxPatience(first=600, longest=600, give_up=600))
    outbox.put(Note("a", "one"))
    # The answer has come, too: a message whose answer comes after `close` has been sent once more already.
    wait_until(lambda: wire.sent == ["PATCH one"] and bool(outbox._waiting))

    outbox.close(_SECONDS)

    assert wire.sent == ["PATCH one", "PATCH one"]


def test_close_does_not_wait_for_an_api_server_that_hangs() -> None:
    wire = Wire()
    wire.open.clear()
    outbox = Outbox(wire.send, QUICK)
    outbox.put(Note("a", "one"))
    assert wire.begun.wait(_SECONDS)

    outbox.close(0.05)

    assert wire.sent == []
    wire.open.set()
