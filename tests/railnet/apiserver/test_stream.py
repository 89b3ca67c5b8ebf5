"""Watches by the transport of the controllers, against a server that speaks real TLS, and that dies, hangs, lies and floods."""

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from railnet.apiserver import client as client_module
from railnet.apiserver import object_watch, service_account
from railnet.apiserver.client import Absent, Expired, RequestFailed, StreamingApiServer, TooLarge
from railnet.apiserver.kubernetes_package_transport import KubernetesTransport
from railnet.apiserver.object_watch import Change, NotAsDocumented, WatchEventType, changes, pages
from railnet.apiserver.request import ApiObject, Collection, log, watch
from tests.railnet.apiserver.raw_server import RawServer, Script, answer, saying, serving
from tests.waiting import until

PODS = Collection("v1", "pods")
WATCH = watch(PODS, "5", 300)
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
TEXT_HEAD = HEAD.replace(b"application/json", b"text/plain")
CLOSING_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RawServer]:
    with serving(tmp_path / "account") as found:
        yield found


@pytest.fixture
def new_client(server: RawServer) -> Callable[[float], StreamingApiServer]:
    account = service_account.find(server.environment, server.folder)
    return lambda silence: StreamingApiServer(
        KubernetesTransport(account, 20.0, 20.0, silence), account.token, "railnet-test"
    )


@pytest.fixture
def client(new_client: Callable[[float], StreamingApiServer]) -> StreamingApiServer:
    return new_client(20.0)


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def event(kind: str = "ADDED", name: str = "a", version: str = "6") -> bytes:
    metadata = {"namespace": "ml", "name": name, "resourceVersion": version}
    return json.dumps({"type": kind, "object": {"kind": "Pod", "metadata": metadata}}).encode() + b"\n"


def streaming(*parts: bytes, head: bytes = HEAD, hangs_up: bool = False) -> Script:
    """Send chunks, and the end of the stream; or hang up without it."""

    def script(connection: socket.socket) -> None:
        connection.sendall(head + b"".join(chunk(part) if head is HEAD else part for part in parts))
        if hangs_up or head is CLOSING_HEAD:
            raise OSError
        connection.sendall(b"0\r\n\r\n")

    return script


def watched(client: StreamingApiServer) -> tuple[list[Change], RequestFailed | None]:
    """Return all changes of one watch, and the failure that ended it."""
    found: list[Change] = []
    try:
        found.extend(changes(client, PODS, "5", 300))  # keeps those before the failure
    except RequestFailed as error:
        return found, error
    return found, None


def test_changes_arrive_however_their_lines_are_cut_into_chunks(server: RawServer, client: StreamingApiServer) -> None:
    whole = event() + event("MODIFIED", "a", "7") + event("DELETED", "a", "8") + event("BOOKMARK", "", "9")
    for size in (1, 7, 50, len(whole)):
        server.script = streaming(*(whole[place : place + size] for place in range(0, len(whole), size)))

        found, error = watched(client)

        assert error is None
        assert [(change.kind, change.version) for change in found] == [
            (WatchEventType.ADDED, "6"),
            (WatchEventType.MODIFIED, "7"),
            (WatchEventType.DELETED, "8"),
            (WatchEventType.BOOKMARK, "9"),
        ]
        assert found[0].found["metadata"]["name"] == "a"
    assert server.requests[0].startswith(
        b"GET /api/v1/pods?watch=true&resourceVersion=5&timeoutSeconds=300&allowWatchBookmarks=true HTTP/1.1\r\n"
    )


@pytest.mark.parametrize("head", [HEAD, CLOSING_HEAD], ids=["chunked", "until the connection closes"])
def test_line_that_a_dying_api_server_left_unfinished_is_no_change(
    server: RawServer, client: StreamingApiServer, head: bytes
) -> None:
    server.script = streaming(event(), event("DELETED", "a", "7")[:-9], head=head, hangs_up=True)

    found, error = watched(client)

    assert [change.version for change in found] == ["6"]
    assert (error is not None) == (head is HEAD)  # without chunks, a death looks like an end
    assert error is None or (error.temporary and str(error).startswith("cannot watch pods: "))


@pytest.mark.parametrize("is_chunked", [True, False], ids=["chunked", "until the connection closes"])
def test_last_line_of_a_log_needs_no_end(server: RawServer, client: StreamingApiServer, *, is_chunked: bool) -> None:
    parts = (b"first\nsec", b"ond\nloss 0.1")

    def script(connection: socket.socket) -> None:
        head = TEXT_HEAD if is_chunked else CLOSING_HEAD.replace(b"application/json", b"text/plain")
        connection.sendall(head + (b"".join(map(chunk, parts)) + b"0\r\n\r\n" if is_chunked else b"".join(parts)))
        if not is_chunked:
            raise OSError

    server.script = script

    assert list(client.lines(log(ApiObject("v1", "pods", "a", "ml", "log")))) == [b"first", b"second", b"loss 0.1"]


def test_log_that_a_dying_connection_cut_has_no_half_line(server: RawServer, client: StreamingApiServer) -> None:
    def script(connection: socket.socket) -> None:
        connection.sendall(TEXT_HEAD + chunk(b"first\nhal"))
        raise OSError

    server.script = script
    lines = client.lines(log(ApiObject("v1", "pods", "a", "ml", "log")))

    assert next(lines) == b"first"
    with pytest.raises(RequestFailed):
        next(lines)


def test_watch_is_accepted_before_its_first_line(server: RawServer, client: StreamingApiServer) -> None:
    accepted = threading.Event()

    def wait_for_it(connection: socket.socket) -> None:
        connection.sendall(HEAD)
        assert accepted.wait(20)
        connection.sendall(chunk(event()) + b"0\r\n\r\n")

    server.script = wait_for_it

    assert len(list(changes(client, PODS, "5", 300, accepted.set))) == 1


def test_watch_that_is_refused_is_not_accepted(server: RawServer, client: StreamingApiServer) -> None:
    server.script = saying(answer(b'{"message": "no"}', "404 Not Found"))

    with pytest.raises(Absent, match="cannot watch pods: no"):
        list(client.lines(WATCH, lambda: pytest.fail("it was accepted")))


@pytest.mark.parametrize(("status", "kind"), [("410 Gone", Expired), ("429 Too Many Requests", RequestFailed)])
def test_refused_watch_has_the_kind_and_the_pause_of_its_status(
    server: RawServer, client: StreamingApiServer, status: str, kind: type[RequestFailed]
) -> None:
    server.script = saying(answer(b'{"message": "too old"}', status, "Retry-After: 7"))

    _, error = watched(client)

    assert type(error) is kind
    assert error.retry_after == 7.0
    assert "too old" in str(error)


def test_retry_after_of_years_is_five_minutes(server: RawServer, client: StreamingApiServer) -> None:
    for text in ("999999999999", "9" * 400):
        server.script = saying(answer(b"{}", "429 X", f"Retry-After: {text}"))
        _, error = watched(client)

        assert error is not None
        assert error.retry_after == 300.0


ERROR_EVENTS = [
    ({"code": 410, "message": "too old resource version: 5 (9)"}, Expired, 410, False),
    ({"code": 500, "message": "etcd is away"}, RequestFailed, 500, True),
    ({"message": "no code"}, RequestFailed, 0, True),
    ({"code": "410", "message": 5}, RequestFailed, 0, True),
    ({}, RequestFailed, 0, True),
]


@pytest.mark.parametrize(("status", "kind", "code", "temporary"), ERROR_EVENTS, ids=str)
def test_event_error_is_a_failure_of_its_status(
    server: RawServer,
    client: StreamingApiServer,
    status: dict[str, object],
    kind: type[RequestFailed],
    code: int,
    temporary: bool,
) -> None:
    server.script = streaming(event(), json.dumps({"type": "ERROR", "object": status}).encode() + b"\n", event())

    found, error = watched(client)

    assert len(found) == 1
    assert type(error) is kind
    assert (error.status, error.temporary) == (code, temporary)
    assert str(status.get("message")) in str(error)


LINES = {
    "no JSON": b'{"type": "ADDED", "obj\n',
    "no object": b"[]\n",
    "nothing": b"\n",
    "no type": b'{"object": {"metadata": {"resourceVersion": "1"}}}\n',
    "another type": b'{"type": "LIED", "object": {"metadata": {"resourceVersion": "1"}}}\n',
    "type of another type": b'{"type": [], "object": {"metadata": {"resourceVersion": "1"}}}\n',
    "object of another type": b'{"type": "ADDED", "object": "a"}\n',
    "no metadata": b'{"type": "ADDED", "object": {}}\n',
    "metadata of another type": b'{"type": "ADDED", "object": {"metadata": []}}\n',
    "no version": b'{"type": "ADDED", "object": {"metadata": {}}}\n',
    "empty version": b'{"type": "ADDED", "object": {"metadata": {"resourceVersion": ""}}}\n',
    "version of another type": b'{"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": {"a": 1}}}}\n',
    "status of another type": b'{"type": "ERROR", "object": 410}\n',
    "no text": b'{"type": "ADDED", "object": "\xff"}\n',
    "deep": b"[" * 200_000 + b"\n",
    "a number of many digits": b"1" * 10_000 + b"\n",
}


@pytest.mark.parametrize("line", LINES.values(), ids=LINES.keys())
def test_line_that_is_no_change_ends_the_watch_with_words(
    server: RawServer, client: StreamingApiServer, line: bytes
) -> None:
    server.script = streaming(event(), line, event())

    found, error = watched(client)

    assert len(found) == 1
    assert isinstance(error, NotAsDocumented)
    assert str(error).startswith("cannot watch pods: the API server sent no change: ")
    assert len(str(error)) < 400


def test_page_of_another_program_is_named(server: RawServer, client: StreamingApiServer) -> None:
    server.script = saying(answer(b"<html>\n</html>\n", "200 OK", "Content-Type: text/html"))

    _, error = watched(client)

    assert "'text/html', not application/json" in str(error)


def test_line_of_gigabytes_is_not_read_to_its_end(
    server: RawServer, client: StreamingApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "_MAX_ANSWER_BYTES", 100_000)
    hung_up = threading.Event()

    def flood(connection: socket.socket) -> None:
        connection.sendall(HEAD + chunk(event()))
        try:
            while True:
                connection.sendall(chunk(b"x" * 65536))
        except OSError:
            hung_up.set()
            raise

    server.script = flood
    found, error = watched(client)

    assert len(found) == 1
    assert isinstance(error, TooLarge)
    assert hung_up.wait(20)


def test_failure_of_gigabytes_is_not_read_to_its_end(
    server: RawServer, client: StreamingApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "_MAX_ANSWER_BYTES", 100_000)

    def flood(connection: socket.socket) -> None:
        connection.sendall(answer(b"", "500 X", length=1 << 40))
        while True:
            connection.sendall(b"x" * 65536)

    server.script = flood
    _, error = watched(client)

    assert str(error).startswith("cannot watch pods: HTTP 500: xxx")
    assert len(str(error)) < 1100


@pytest.mark.slow
@pytest.mark.parametrize(
    ("begin", "every"),
    [(b"", b""), (HEAD, b""), (HEAD + chunk(event()), b""), (HEAD, chunk(b" ")), (b"HTTP/1.1 200 OK\r\nX: ", b"x")],
    ids=["no head", "no line", "no second line", "a line byte by byte", "a head without an end"],
)
def test_stream_that_hangs_ends_in_time(
    server: RawServer, new_client: Callable[[float], StreamingApiServer], begin: bytes, every: bytes
) -> None:
    def script(connection: socket.socket) -> None:
        connection.sendall(begin)
        while not server.ended.wait(0.02):
            connection.sendall(every)

    server.script = script
    has_line = b"ADDED" in begin  # on a busy machine the line comes late, and must come in time
    found, error = watched(new_client(5.0 if has_line else 0.4))

    assert len(found) == has_line
    assert error is not None
    assert "timed out" in str(error).lower()
    assert error.temporary


@pytest.mark.slow
def test_stream_that_speaks_in_time_lives_longer_than_one_silence(
    server: RawServer, new_client: Callable[[float], StreamingApiServer]
) -> None:
    """A bookmark a minute keeps a watch alive for ten minutes, though two and a half minutes of silence end it."""

    def script(connection: socket.socket) -> None:
        connection.sendall(HEAD)
        for number in range(35):
            assert not server.ended.wait(0.2)
            connection.sendall(chunk(event("BOOKMARK", "", str(number + 1))))
        connection.sendall(b"0\r\n\r\n")

    server.script = script
    found, error = watched(new_client(5.0))  # 25 times as long as a silence: this machine may be busy

    assert error is None
    assert len(found) == 35


def hanging_up(server: RawServer) -> threading.Event:
    """Send a change and then bookmarks without an end; the event is set when the client has hung up."""
    hung_up = threading.Event()

    def script(connection: socket.socket) -> None:
        try:
            connection.sendall(HEAD + chunk(event()))
            while not server.ended.wait(0.01):
                connection.sendall(chunk(event("BOOKMARK", "", "7")))
        except OSError:
            hung_up.set()
            raise

    server.script = script
    return hung_up


def test_consumer_that_stops_early_closes_the_connection(server: RawServer, client: StreamingApiServer) -> None:
    hung_up = hanging_up(server)
    with closing(changes(client, PODS, "5", 300)) as found:
        assert next(found).kind is WatchEventType.ADDED
        assert not hung_up.is_set()

    assert hung_up.wait(20)
    server.script = streaming(event())
    assert len(watched(client)[0]) == 1  # by another connection
    assert server.connections == 2


def test_consumer_that_fails_closes_the_connection(server: RawServer, client: StreamingApiServer) -> None:
    hung_up = hanging_up(server)

    def consume() -> None:
        with closing(client.lines(WATCH)) as found:
            raise ZeroDivisionError(next(found))

    with pytest.raises(ZeroDivisionError):
        consume()
    assert hung_up.wait(20)


def test_connection_is_closed_with_the_block_although_the_answer_is_still_known(
    server: RawServer, client: StreamingApiServer
) -> None:
    hung_up = hanging_up(server)
    with client._streaming.stream(WATCH, {}, 1000) as stream:
        assert next(stream.pieces)

    assert hung_up.wait(20)
    del stream


def test_connection_of_a_watch_that_ended_is_used_again(server: RawServer, client: StreamingApiServer) -> None:
    server.script = streaming(event())
    for _ in range(3):
        assert watched(client)[1] is None

    assert server.connections == 1


def test_requests_are_answered_while_a_watch_runs(server: RawServer, client: StreamingApiServer) -> None:
    hanging_up(server)
    with closing(client.lines(WATCH)) as found:
        next(found)
        server.script = saying(answer(page(0, 1)))
        assert len(list(pages(client, PODS))) == 1
        next(found)


def test_watch_of_a_server_that_is_gone_is_a_temporary_failure(server: RawServer, client: StreamingApiServer) -> None:
    server.close()

    _, error = watched(client)

    assert error is not None
    assert (error.status, error.temporary) == (0, True)
    assert "Connection refused" in str(error)


def page(begin: int, end: int, proceed: str = "", version: str = "100") -> bytes:
    items = [{"metadata": {"namespace": "ml", "name": f"p{number}"}} for number in range(begin, end)]
    return json.dumps({"metadata": {"resourceVersion": version, "continue": proceed}, "items": items}).encode()


def asked(request: bytes) -> str:
    return request.split(b" ", 2)[1].decode()


class Listing:
    """Answers LIST requests of `count` objects; answers with some objects are too large to be read.

    Attributes:
        too_large: tells whether an answer is, by its first object's number and the number of its objects.
    """

    def __init__(self, server: RawServer, count: int, readable: int = 0) -> None:
        self._server, self._count = server, count
        self.too_large: Callable[[int, int], bool] = lambda _, objects: objects > readable
        self.expired = False
        server.script = self.script

    def script(self, connection: socket.socket) -> None:
        query = dict(one.split("=") for one in asked(self._server.requests[-1]).partition("?")[2].split("&"))
        begin, limit = int(query.get("continue", "0")), int(query["limit"])
        end = min(begin + limit, self._count)
        if self.expired and begin:
            connection.sendall(answer(b'{"message": "the provided continue parameter is too old"}', "410 Gone"))
        elif self.too_large(begin, end - begin):
            connection.sendall(answer(b" " * 200_000))
        else:
            connection.sendall(answer(page(begin, end, str(end) if end < self._count else "")))


@pytest.mark.parametrize(("count", "limits"), [(0, [256]), (256, [256]), (257, [256, 256]), (600, [256, 256, 256])])
def test_all_pages_are_read(server: RawServer, client: StreamingApiServer, count: int, limits: list[int]) -> None:
    Listing(server, count, 1000)

    found = list(pages(client, PODS))

    assert [one["metadata"]["name"] for page in found for one in page.found] == [
        f"p{number}" for number in range(count)
    ]
    assert {page.version for page in found} == {"100"}
    assert [asked(request).split("limit=")[1].partition("&")[0] for request in server.requests] == list(
        map(str, limits)
    )


def test_pages_that_are_too_large_are_halved_and_no_object_is_lost(
    server: RawServer, client: StreamingApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "_MAX_ANSWER_BYTES", 100_000)
    Listing(server, 200, 40)

    found = [one["metadata"]["name"] for page in pages(client, PODS) for one in page.found]

    assert found == [f"p{number}" for number in range(200)]
    assert limits(server) == [256, 128, 64, *[32] * 7]


def test_pages_become_larger_again_behind_objects_that_are_large(
    server: RawServer, client: StreamingApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else one author's few large objects would make thousands of requests of a list."""
    monkeypatch.setattr(client_module, "_MAX_ANSWER_BYTES", 100_000)
    Listing(server, 2000).too_large = lambda begin, objects: begin < 4 and objects > 1

    found = [one["metadata"]["name"] for page in pages(client, PODS) for one in page.found]

    assert found == [f"p{number}" for number in range(2000)]
    asked_for = limits(server)
    assert asked_for[:9] == [256, 128, 64, 32, 16, 8, 4, 2, 1]
    assert asked_for[9:] == [*[1] * 7, *[2] * 8, *[4] * 8, *[8] * 8, *[16] * 8, *[32] * 8, *[64] * 8, *[128] * 8]


@pytest.mark.parametrize(
    ("mib", "limits_"), [(1, [256]), (3, [256, 128, 64, 32, 16, 8, 4, 2, 1]), (21, [256, 128, 64, 32, 16, 8, 4, 2, 1])]
)
def test_page_of_several_objects_is_read_up_to_two_mib_and_one_object_up_to_twenty(
    server: RawServer, client: StreamingApiServer, mib: int, limits_: list[int]
) -> None:
    """What a page takes in memory is many times its bytes, and is up to the authors of the objects."""
    server.script = saying(answer(page(0, 1) + b" " * (mib << 20)))

    if mib > 20:
        with pytest.raises(TooLarge):
            list(pages(client, PODS))
    else:
        (found,) = pages(client, PODS)
        assert len(found.found) == 1
    assert limits(server) == limits_


HOSTILE = {
    # kube-apiserver writes each `<` as six bytes, and etcd takes requests of 1.5 MiB.
    "a_million_signs_that_json_escapes": b'"' + b"\\u003c" * 1_500_000 + b'"',
    "a_value_of_5000_levels": b'{"a":' * 5000 + b"1" + b"}" * 5000,
    "brackets_in_a_text_beside_deep_values": b'["]}\\"",' + b"[" * 5000 + b"]" * 5000 + b',"}"]',
    "a_number_of_5000_digits": b"9" * 5000,
    "a_number_of_5000_digits_before_a_deep_value": b"[" + b"9" * 5000 + b"," + b"[" * 5000 + b"]" * 5000 + b"]",
    "a_number_of_5000_digits_behind_a_deep_value": b"[" + b"[" * 5000 + b"]" * 5000 + b"," + b"9" * 5000 + b"]",
}


@pytest.mark.parametrize("value", HOSTILE.values(), ids=HOSTILE)
def test_object_of_one_author_does_not_keep_the_others_from_being_listed_and_watched(
    server: RawServer, client: StreamingApiServer, value: bytes
) -> None:
    hostile = b'{"metadata":{"name":"x","resourceVersion":"6"},"spec":' + value + b"}"
    items = b",".join((hostile, event()[:-2].partition(b'"object": ')[2]))
    server.script = saying(answer(b'{"metadata":{"resourceVersion":"5"},"items":[' + items + b"]}"))
    listed = [document["metadata"]["name"] for page in pages(client, PODS) for document in page.found]
    server.script = streaming(b'{"type":"ADDED","object":' + hostile + b"}\n", event("ADDED", "b", "7"))
    found, error = watched(client)

    assert listed == ["x", "a"]
    assert [change.found["metadata"]["name"] for change in found] == ["x", "b"]
    assert error is None


def limits(server: RawServer) -> list[int]:
    return [int(asked(request).split("limit=")[1].partition("&")[0]) for request in server.requests]


def test_one_object_that_is_too_large_is_a_failure(
    server: RawServer, client: StreamingApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "_MAX_ANSWER_BYTES", 100_000)
    Listing(server, 5, 0)

    with pytest.raises(TooLarge, match="cannot list pods: the answer has more than 100000 bytes"):
        list(pages(client, PODS))

    assert len(server.requests) == 9  # 256, 128 … 1


def test_list_whose_next_page_is_gone_is_expired(server: RawServer, client: StreamingApiServer) -> None:
    Listing(server, 600, 1000).expired = True

    found = pages(client, PODS)

    assert len(next(found).found) == 256
    with pytest.raises(Expired, match="the provided continue parameter is too old"):
        next(found)


LIES = {
    "another object": {"kind": "Pod", "metadata": {"name": "a", "namespace": "ml"}},
    "a status": {"kind": "Status", "status": "Success", "metadata": {}},
    "empty": {},
    "no version": {"metadata": {}, "items": []},
    "empty version": {"metadata": {"resourceVersion": ""}, "items": []},
    "version of another type": {"metadata": {"resourceVersion": 5}, "items": []},
    "metadata of another type": {"metadata": "5", "items": []},
    "continue of another type": {"metadata": {"resourceVersion": "5", "continue": ["x"]}, "items": []},
    "items of another type": {"metadata": {"resourceVersion": "5"}, "items": 7},
    "items by name": {"metadata": {"resourceVersion": "5"}, "items": {"a": {}}},
    "an item of another type": {"metadata": {"resourceVersion": "5"}, "items": [{}, "a"]},
}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES.keys())
def test_answer_that_is_no_list_is_not_taken_for_an_empty_one(
    server: RawServer, client: StreamingApiServer, lie: dict[str, object]
) -> None:
    server.script = saying(answer(json.dumps(lie).encode()))

    with pytest.raises(NotAsDocumented, match=r"^cannot list pods: "):
        list(pages(client, PODS))


def test_empty_list_may_be_null(server: RawServer, client: StreamingApiServer) -> None:
    server.script = saying(answer(b'{"metadata": {"resourceVersion": "5"}, "items": null}'))

    assert list(pages(client, PODS)) == [object_watch.Page([], "5")]


def test_page_that_names_itself_as_the_next_one_ends_the_list(server: RawServer, client: StreamingApiServer) -> None:
    server.script = saying(answer(page(0, 5, "again")))

    with pytest.raises(NotAsDocumented, match="as the one after itself"):
        list(pages(client, PODS))

    assert len(server.requests) == 2


def test_change_reaches_the_consumer_before_the_next_one_exists(server: RawServer, client: StreamingApiServer) -> None:
    taken = threading.Event()

    def script(connection: socket.socket) -> None:
        connection.sendall(HEAD + chunk(event()))
        until(taken.is_set, 20, "the first change was taken")
        connection.sendall(chunk(event("DELETED", "a", "7")) + b"0\r\n\r\n")

    server.script = script
    found = changes(client, PODS, "5", 300)

    assert next(found).version == "6"
    taken.set()
    assert next(found).version == "7"
