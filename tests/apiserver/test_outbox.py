"""What waits for the API server: obsoleted, tried again, bounded, dropped, and never in anybody's way."""

import itertools
import threading
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from apiserver import outbox as outbox_module
from apiserver.client import Answer, Request
from apiserver.outbox import Outbox, Patience

QUICK = Patience(first=0.01, longest=0.02, give_up=20)
_SECONDS = 20.0


@dataclass(frozen=True)
class Note:
    key: Hashable
    text: str
    methods: tuple[str, ...] = ("PATCH",)

    def requests(self) -> Sequence[Request]:
        return [Request(method, "/", "", self.text.encode()) for method in self.methods]


class Wire:
    """Gives prepared answers one by one, then success; holds them back while `open` is not set."""

    def __init__(self, *answers: Answer | OSError | int) -> None:
        self.answers = list(answers)
        self.sent: list[str] = []
        self.begun = threading.Event()
        self.open = threading.Event()
        self.open.set()

    def send(self, request: Request) -> Answer:
        self.begun.set()
        assert self.open.wait(_SECONDS)
        self.sent.append(f"{request.method} {request.body.decode()}")
        answer = self.answers.pop(0) if self.answers else 200
        if isinstance(answer, OSError):
            raise answer
        return Answer(answer) if isinstance(answer, int) else answer


def wait_until(holds: Callable[[], bool]) -> None:
    give_up = time.monotonic() + _SECONDS
    while not holds():
        assert time.monotonic() < give_up
        time.sleep(0.005)


def sent(wire: Wire, *notes: Note, expected: int) -> tuple[list[str], int]:
    """Send notes until so many requests were made; gives them, and how many notes were lost."""
    outbox = Outbox(wire.send, QUICK)
    for note in notes:
        outbox.put(note)
    wait_until(lambda: len(wire.sent) >= expected)
    outbox.close(_SECONDS)
    return wire.sent, outbox.lost


def test_message_is_sent_once() -> None:
    assert sent(Wire(200), Note("a", "one"), expected=1) == (["PATCH one"], 0)


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


def test_newer_message_takes_the_place_of_the_one_it_makes_obsolete() -> None:
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


def test_failed_message_is_not_tried_again_when_a_newer_one_says_it_all() -> None:
    wire = Wire(OSError("reset"))
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


@pytest.mark.parametrize("bad", [401, 408, 429, 500, 503, OSError("refused")], ids=str)
def test_bad_moments_are_tried_again(bad: int | OSError) -> None:
    assert sent(Wire(bad, bad), Note("a", "one"), expected=3) == (["PATCH one"] * 3, 0)


def test_pauses_grow_up_to_the_longest_and_obey_the_api_server() -> None:
    moments: list[float] = []

    def send(request: Request) -> Answer:
        moments.append(time.monotonic())
        return Answer(*((429, "", 0.3) if len(moments) == 4 else (503,) if len(moments) < 6 else (200,)))

    outbox = Outbox(send, Patience(first=0.05, longest=0.5, give_up=20))
    outbox.put(Note("a", "one"))
    wait_until(lambda: len(moments) == 6)
    outbox.close(_SECONDS)

    pauses = [later - earlier for earlier, later in itertools.pairwise(moments)]
    at_least = [0.05, 0.1, 0.2, 0.4, 0.5]
    assert all(pause >= least for pause, least in zip(pauses, at_least, strict=True))


@pytest.mark.parametrize("final", [404, 409, 422])
def test_pod_that_is_gone_or_another_is_no_loss(final: int) -> None:
    assert sent(Wire(final), Note("a", "one"), expected=1) == (["PATCH one"], 0)


@pytest.mark.parametrize("refused", [400, 403, 405, 415])
def test_refusal_is_a_loss_and_is_not_repeated(refused: int) -> None:
    assert sent(Wire(refused), Note("a", "one"), expected=1) == (["PATCH one"], 1)


def test_next_request_of_a_message_is_for_when_the_one_before_finds_nothing() -> None:
    note = Note("a", "one", ("PATCH", "POST"))

    assert sent(Wire(404), note, expected=2) == (["PATCH one", "POST one"], 0)
    assert sent(Wire(200), note, expected=1) == (["PATCH one"], 0)


def test_object_that_is_there_already_was_made_by_an_earlier_try() -> None:
    assert sent(Wire(OSError("reset"), 409), Note("a", "one", ("POST",)), expected=2) == (["POST one"] * 2, 0)


def test_message_is_dropped_when_it_is_old(monkeypatch: pytest.MonkeyPatch) -> None:
    wire = Wire(*[503] * 1000)
    readings = itertools.count()  # of a clock that goes on by being read: how busy this machine is decides nothing
    monkeypatch.setattr(outbox_module, "time", SimpleNamespace(monotonic=lambda: next(readings)))
    outbox = Outbox(wire.send, Patience(first=0.01, longest=0.01, give_up=20))
    outbox.put(Note("a", "one"))

    wait_until(lambda: outbox.lost == 1)
    tries = len(wire.sent)
    outbox.put(Note("b", "two"))
    wait_until(lambda: "PATCH two" in wire.sent)
    outbox.close(_SECONDS)

    assert tries > 1
    assert wire.sent.count("PATCH one") == tries


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


def test_message_that_cannot_be_spelled_does_not_stop_those_after_it() -> None:
    class Odd(Note):
        def requests(self) -> Sequence[Request]:
            raise ValueError("the primary's result cannot be understood")

    assert sent(Wire(), Odd("a", "odd"), Note("b", "two"), expected=1) == (["PATCH two"], 1)


def test_failing_message_does_not_hold_up_another() -> None:
    wire = Wire(503)
    outbox = Outbox(wire.send, Patience(first=15, longest=15, give_up=20))
    outbox.put(Note("a", "one"))
    wait_until(lambda: wire.sent == ["PATCH one"])
    outbox.put(Note("b", "two"))

    wait_until(lambda: wire.sent == ["PATCH one", "PATCH two"])
    outbox.close(_SECONDS)


def test_end_sends_what_waits_once_more_and_without_a_pause() -> None:
    wire = Wire(503)
    outbox = Outbox(wire.send, Patience(first=600, longest=600, give_up=600))
    outbox.put(Note("a", "one"))
    wait_until(lambda: wire.sent == ["PATCH one"])

    outbox.close(_SECONDS)

    assert wire.sent == ["PATCH one", "PATCH one"]


def test_end_does_not_wait_for_an_api_server_that_hangs() -> None:
    wire = Wire()
    wire.open.clear()
    outbox = Outbox(wire.send, QUICK)
    outbox.put(Note("a", "one"))
    assert wire.begun.wait(_SECONDS)

    outbox.close(0.05)

    assert wire.sent == []
    wire.open.set()
