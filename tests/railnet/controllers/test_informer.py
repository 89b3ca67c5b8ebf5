"""An informer's objects equal the API server's after any interleaving of changes, cuts, failures and forgotten versions."""

import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from railnet.apiserver.client import Expired, RequestFailed
from railnet.apiserver.request import Collection, JsonObject, Request, Verb
from railnet.backoff import Backoff
from railnet.controllers import informer as informer_module
from railnet.controllers.informer import Informer
from tests.jittered import jittered
from tests.railnet.controllers.model_server import ModelServer, Step

PODS = Collection("v1", "pods")
NAMES = ["a", "b", "c"]
BACKOFF = informer_module.BACKOFF
Kept = tuple[str, int]


@pytest.fixture(autouse=True)
def pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(informer_module, "BACKOFF", Backoff(0.0, 0.0))
    monkeypatch.setattr(informer_module, "_SHORTEST_WATCH_SECONDS", 0.0)


def keep(found: JsonObject) -> Kept | None:
    """Objects with odd values are not kept."""
    value = found["value"]
    return None if value % 2 else (found["metadata"]["name"], value)


class Mirror:
    """What a listener knows by the changes alone."""

    def __init__(self) -> None:
        self.objects: dict[str, int] = {}
        self.listed = 0

    def change(self, before: Kept | None, after: Kept | None) -> None:
        assert before != after
        if before is not None:
            assert self.objects.pop(before[0]) == before[1]
        if after is not None:
            assert after[0] not in self.objects
            self.objects[after[0]] = after[1]


STEPS = st.builds(
    Step,
    st.sampled_from(["put", "put", "put", "put", "delete", "delete", "bookmark", "cut", "die", "expire", "refuse"]),
    st.sampled_from(NAMES),
    st.integers(0, 5),
)


@pytest.mark.slow
@given(
    before=st.dictionaries(st.sampled_from(NAMES), st.integers(0, 5)), script=st.lists(STEPS, min_size=20, max_size=50)
)
def test_objects_equal_those_of_the_server(before: dict[str, int], script: list[Step]) -> None:
    ended = threading.Event()
    server = ModelServer(script, ended)
    for name, value in before.items():
        server.put(name, value)
    mirror = Mirror()
    errors: list[Exception] = []

    def changed(old: Kept | None, new: Kept | None) -> None:
        try:
            mirror.change(old, new)
        except (AssertionError, KeyError) as error:  # the informer logs an error of a listener, and goes on
            errors.append(error)

    informer = Informer(server, PODS, keep, changed)  # type: ignore[arg-type]

    informer.run(ended)

    expected = {name: one["value"] for name, one in server.objects.items() if not one["value"] % 2}
    assert errors == []
    assert dict(informer.all()) == expected
    assert mirror.objects == expected
    assert all(informer.get("ml", name) == ((name, expected[name]) if name in expected else None) for name in NAMES)
    assert informer.listed.is_set()
    assert informer.trouble == ""


class Scripted:
    """An API server whose n-th answer is the n-th of a list: an object, lines, or a failure."""

    def __init__(self, ended: threading.Event, *answers: Any) -> None:
        self._ended, self._answers = ended, list(answers)
        self.requests: list[Request] = []

    def _next(self, request: Request) -> Any:
        self.requests.append(request)
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            self._end_after_the_last()
            raise answer
        return answer

    def _end_after_the_last(self) -> None:
        if not self._answers:
            self._ended.set()

    def send(self, request: Request) -> JsonObject:
        found: JsonObject = self._next(request)
        self._end_after_the_last()
        return found

    def lines(self, request: Request, accepted: Callable[[], object]) -> Iterator[bytes]:
        found = self._next(request)
        accepted()
        yield from found
        self._end_after_the_last()

    @property
    def verbs(self) -> list[Verb]:
        return [request.verb for request in self.requests]


def listed(*objects: JsonObject, version: str = "5") -> JsonObject:
    return {"metadata": {"resourceVersion": version}, "items": list(objects)}


def an_object(name: str, value: Any = 0) -> JsonObject:
    return {"metadata": {"namespace": "ml", "name": name, "resourceVersion": "5"}, "value": value}


def run(
    *answers: Any, changed: Callable[[Kept | None, Kept | None], None] = lambda *_: None
) -> tuple[Scripted, Informer[Kept]]:
    ended = threading.Event()
    server = Scripted(ended, *answers)
    informer = Informer(server, PODS, keep, changed)  # type: ignore[arg-type]
    informer.run(ended)
    return server, informer


BOOKMARK = b'{"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "9"}}}'
LIST_AGAIN = [
    Expired("too old", 410),
    RequestFailed("invalid resourceVersion", 400),
    RequestFailed("forbidden", 403),
    [b"no JSON"],
    [b'{"type": "ERROR", "object": {"code": 410}}'],
    [b'{"type": "ADDED", "object": {"metadata": {}}}'],
]


@pytest.mark.parametrize("failure", LIST_AGAIN, ids=str)
def test_watch_that_would_fail_again_is_followed_by_a_list(failure: Any) -> None:
    server, informer = run(listed(), failure, listed(an_object("a"), version="20"), [BOOKMARK])

    assert server.verbs == [Verb.LIST, Verb.WATCH, Verb.LIST, Verb.WATCH]
    assert "resourceVersion=20" in server.requests[-1].query
    assert informer.all() == [("a", 0)]
    assert informer.trouble == ""


@pytest.mark.parametrize(
    "failure", [RequestFailed("reset"), RequestFailed("500", 500), RequestFailed("429", 429)], ids=repr
)
def test_watch_that_may_succeed_later_goes_on_where_it_was(failure: Exception) -> None:
    server, _ = run(listed(), [BOOKMARK], failure, failure, [BOOKMARK])

    assert server.verbs == [Verb.LIST, *[Verb.WATCH] * 4]
    assert all("resourceVersion=9" in request.query for request in server.requests[2:])


def test_answer_that_is_no_list_takes_no_object_away() -> None:
    lie = {"kind": "Status", "metadata": {}}
    _, informer = run(listed(an_object("a")), Expired("too old", 410), lie)

    assert informer.all() == [("a", 0)]
    assert "the answer is no list" in informer.trouble


class Pauses(threading.Event):
    """An event that notes each time that it should be waited for, and is set after some of them."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.seconds: list[float | None] = []
        self._most = most

    def wait(self, timeout: float | None = None) -> bool:
        self.seconds.append(timeout)
        if len(self.seconds) >= self._most:
            self.set()
        return self.is_set()


def pauses_of(api: object, most: int, monkeypatch: pytest.MonkeyPatch) -> list[float | None]:
    monkeypatch.setattr(informer_module, "BACKOFF", BACKOFF)
    monkeypatch.setattr(informer_module, "_SHORTEST_WATCH_SECONDS", 60.0)
    ended = Pauses(most)
    Informer(api, PODS, keep, lambda *_: None).run(ended)  # type: ignore[arg-type]
    return ended.seconds


class Failing:
    """Lists well, and fails each watch in one way."""

    def __init__(self, watch: Callable[[], Iterator[bytes]]) -> None:
        self._watch = watch

    def send(self, request: Request) -> JsonObject:
        return listed()

    def lines(self, request: Request, accepted: Callable[[], object]) -> Iterator[bytes]:
        accepted()
        yield from self._watch()


def refuse(status: int) -> Iterator[bytes]:
    raise Expired("x", status) if status == 410 else RequestFailed("x", status)


@pytest.mark.parametrize(
    "watch",
    [lambda: iter(()), lambda: refuse(0), lambda: refuse(410), lambda: refuse(403), lambda: iter([b"lies"])],
    ids=["ends at once", "dies", "always too old", "forbidden", "lies"],
)
def test_pause_doubles_while_no_watch_works(
    watch: Callable[[], Iterator[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A list that succeeds does not count: two lists a second for ever would be worse than the failure."""
    assert pauses_of(Failing(watch), 9, monkeypatch) == [jittered(one) for one in (0.5, 1, 2, 4, 8, 16, 30, 30, 30)]


def test_pause_begins_again_after_a_watch_that_worked(monkeypatch: pytest.MonkeyPatch) -> None:
    def die_after(*lines: bytes) -> Iterator[bytes]:
        yield from lines
        raise RequestFailed("the connection was reset")

    turns = iter([die_after(), die_after(), die_after(BOOKMARK), die_after(), die_after(BOOKMARK)])

    assert pauses_of(Failing(lambda: next(turns)), 5, monkeypatch) == [jittered(one) for one in (0.5, 1, 0.5, 1, 0.5)]


def test_api_server_says_how_long_the_pause_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def slow_down() -> Iterator[bytes]:
        raise RequestFailed("slow down", 429, 45.0)

    assert pauses_of(Failing(slow_down), 2, monkeypatch) == [45.0, 45.0]


def test_trouble_is_there_until_the_watch_is_accepted() -> None:
    ended = threading.Event()
    seen = []

    class Server(Scripted):
        def lines(self, request: Request, accepted: Callable[[], object]) -> Iterator[bytes]:
            seen.append(informer.trouble)
            yield from super().lines(request, accepted)
            seen.append(informer.trouble)

    server = Server(ended, listed(), [BOOKMARK], RequestFailed("the reason"), [BOOKMARK])
    informer = Informer(server, PODS, keep, lambda *_: None)  # type: ignore[arg-type]
    informer.run(ended)

    assert seen == [
        "pods are not listed yet",
        "",
        "",
        "pods are not up to date: the reason",
        "",
    ]


@pytest.mark.parametrize("value", ["a", None, [], {}], ids=repr)
def test_object_that_cannot_be_read_is_left_out_and_the_others_are_kept(
    value: Any, caplog: pytest.LogCaptureFixture
) -> None:
    event = b'{"type": "ADDED", "object": {"metadata": {"name": "d", "resourceVersion": "6"}, "value": 2}}'
    bad = b'{"type": "MODIFIED", "object": {"metadata": {"namespace": "ml", "name": "c", "resourceVersion": "7"}}}'
    _, informer = run(listed(an_object("a", value), {"metadata": 5}, {}, an_object("b"), an_object("c")), [event, bad])

    assert sorted(informer.all()) == [("b", 0), ("d", 2)]
    assert "pods Name(namespace='ml', name='a') cannot be read, and is left out" in caplog.text


def test_listener_that_fails_for_one_object_is_told_of_the_next(caplog: pytest.LogCaptureFixture) -> None:
    seen = []

    def changed(_: Kept | None, new: Kept | None) -> None:
        if new == ("a", 0):
            raise RuntimeError("planted")
        seen.append(new)

    _, informer = run(listed(an_object("a"), an_object("b"), an_object("c")), [BOOKMARK], changed=changed)

    assert sorted(seen) == [("b", 0), ("c", 0)]  # type: ignore[type-var]
    assert len(informer.all()) == 3
    assert "a change of pods was not taken in; report this error" in caplog.text
    assert [one.levelno for one in caplog.records] == [logging.ERROR]


def test_watch_is_closed_when_the_work_ends() -> None:
    ended, closed = threading.Event(), threading.Event()

    class Server(Scripted):
        def lines(self, request: Request, accepted: Callable[[], object]) -> Iterator[bytes]:
            try:
                while True:
                    yield BOOKMARK
                    ended.set()
            finally:
                closed.set()

    Informer(Server(threading.Event(), listed()), PODS, keep, lambda *_: None).run(ended)  # type: ignore[arg-type]

    assert closed.is_set()


def test_listed_is_reported_once_and_after_all_objects() -> None:
    ended = threading.Event()
    known: list[int] = []
    server = Scripted(ended, listed(an_object("a"), an_object("b")), Expired("x", 410), listed(), [BOOKMARK])
    informer: Informer[Kept] = Informer(
        server,  # type: ignore[arg-type]
        PODS,
        keep,
        lambda *_: None,
        lambda: known.append(len(informer.all())),
    )
    informer.run(ended)

    assert known == [2]
