"""The client by each of its transports, against a server that speaks real TLS, and that dies, hangs, lies, floods and rotates."""

import gzip
import json
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest

from railnet.apiserver import client as client_module
from railnet.apiserver import service_account, tls
from railnet.apiserver.client import Absent, ApiServer, Conflict, Expired, RequestFailed, Transport
from railnet.apiserver.kubernetes_package_transport import KubernetesTransport
from railnet.apiserver.node_transport import NodeTransport
from railnet.apiserver.request import (
    ApiObject,
    Collection,
    Request,
    create,
    delete,
    get,
    json_patch,
    list_page,
    merge_patch,
    update,
)
from railnet.apiserver.service_account import ServiceAccount
from tests.railnet.apiserver.raw_server import OBJECT, RawServer, answer, saying, serving

POD = ApiObject("v1", "pods", "train-0", "ml", "status")
EVENT = ApiObject("v1", "events", "train-0.x", "ml")
TRANSPORTS: dict[str, Callable[[ServiceAccount, float], Transport]] = {
    "node": NodeTransport,
    "kubernetes": lambda account, seconds: KubernetesTransport(account, seconds, seconds),
}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RawServer]:
    with serving(tmp_path / "account") as found:
        yield found


@pytest.fixture(params=TRANSPORTS)
def new_client(server: RawServer, request: pytest.FixtureRequest) -> Callable[[float], ApiServer]:
    account = service_account.find(server.environment, server.folder)
    return lambda seconds: ApiServer(TRANSPORTS[request.param](account, seconds), account.token, "railnet-test")


@pytest.fixture
def client(new_client: Callable[[float], ApiServer]) -> ApiServer:
    return new_client(20.0)


@pytest.mark.parametrize(
    ("request_", "line", "content_type"),
    [
        (get(POD), b"GET /api/v1/namespaces/ml/pods/train-0/status", None),
        (create(EVENT, {"a": "ü"}), b"POST /api/v1/namespaces/ml/events", b"application/json"),
        (update(EVENT, {"a": 1}), b"PUT /api/v1/namespaces/ml/events/train-0.x", b"application/json"),
        (
            merge_patch(POD, {"a": 1}),
            b"PATCH /api/v1/namespaces/ml/pods/train-0/status",
            b"application/merge-patch+json",
        ),
        (
            json_patch(POD, [{"op": "test"}]),
            b"PATCH /api/v1/namespaces/ml/pods/train-0/status",
            b"application/json-patch+json",
        ),
    ],
    ids=str,
)
def test_request_arrives_with_token_and_body_and_the_object_comes_back(
    server: RawServer, client: ApiServer, request_: Request, line: bytes, content_type: bytes | None
) -> None:
    assert client.send(request_) == {"kind": "Pod"}

    (received,) = server.requests
    head, _, body = received.partition(b"\r\n\r\n")
    headers = dict(one.lower().split(b": ", 1) for one in head.split(b"\r\n")[1:])
    assert head.startswith(line + b" HTTP/1.1\r\n")
    assert (headers[b"authorization"], headers[b"accept"]) == (b"bearer a-token", b"application/json")
    assert headers[b"user-agent"] == b"railnet-test"
    assert headers.get(b"content-type") == content_type
    assert (json.loads(body) if body else None) == request_.body


def failure(client: ApiServer, request: Request) -> RequestFailed:
    with pytest.raises(RequestFailed) as caught:
        client.send(request)
    return caught.value


@pytest.mark.parametrize(
    ("status", "request_", "kind", "temporary"),
    [
        (404, get(POD), Absent, False),
        (409, create(EVENT, {}), Conflict, False),
        (409, update(EVENT, {}), Conflict, False),
        (422, json_patch(POD, []), Conflict, False),
        (422, merge_patch(POD, {}), Conflict, False),
        (422, create(EVENT, {}), RequestFailed, False),
        (400, create(EVENT, {}), RequestFailed, False),
        (401, get(POD), RequestFailed, True),
        (408, get(POD), RequestFailed, True),
        (429, get(POD), RequestFailed, True),
        (503, get(POD), RequestFailed, True),
    ],
)
def test_failure_has_its_kind_and_the_words_of_the_api_server(
    server: RawServer, client: ApiServer, status: int, request_: Request, kind: type[RequestFailed], temporary: bool
) -> None:
    server.script = saying(answer(b'{"kind": "Status", "message": "the reason"}', f"{status} X"))

    error = failure(client, request_)

    assert (type(error), error.status, error.temporary) == (kind, status, temporary)
    assert str(error).startswith(f"cannot {request_}: ")
    assert str(error).endswith("the reason")


def test_missing_right_is_named_with_what_to_do(server: RawServer, client: ApiServer) -> None:
    server.script = saying(answer(b'{"message": "User cannot patch"}', "403 Forbidden"))

    assert str(failure(client, merge_patch(POD, {}))) == (
        "cannot patch pods/train-0/status in namespace ml: HTTP 403: the service account railnet-test lacks the right 'patch' "
        "on pods/train-0/status in namespace ml, or a policy forbids the request; apply Railnet's Role and ClusterRole, or "
        "change the policy: User cannot patch"
    )


@pytest.mark.parametrize(
    ("header", "seconds"), [("7", 7.0), ("Wed, 21 Oct 2026 07:28:00 GMT", 0.0), ("-1", 0.0), ("7.5", 0.0), ("", 0.0)]
)
def test_flooded_api_server_says_when_to_come_again(
    server: RawServer, client: ApiServer, header: str, seconds: float
) -> None:
    server.script = saying(answer(b'{"message": "slow down"}', "429 Too Many Requests", f"Retry-After: {header}"))

    assert failure(client, get(POD)).retry_after == seconds


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"<html>bad gateway</html>", "HTTP 502: <html>bad gateway</html>"),
        (b"", "HTTP 502: the API server does not say why"),
        (b"[]", "HTTP 502: []"),
        (b'{"message": ""}', 'HTTP 502: {"message": ""}'),
        (b"[" * 100_000, "HTTP 502: [[["),
        (b'{"message": "%s"}' % (b"x" * 100_000), "HTTP 502: xxx"),
        (b"\xff", "HTTP 502: \ufffd"),
    ],
    ids=["html", "empty", "list", "no words", "deep", "long", "no text"],
)
def test_failure_of_another_program_is_quoted_at_bounded_length(
    server: RawServer, client: ApiServer, body: bytes, words: str
) -> None:
    server.script = saying(answer(body, "502 Bad Gateway"))

    error = failure(client, get(POD))

    assert str(error).startswith(f"cannot get pods/train-0/status in namespace ml: {words}")
    assert len(str(error)) < 1200
    assert error.temporary


JSON = "Content-Type: application/json; charset=utf-8"
LIES = {
    "no JSON": (answer(b'{"kind": '), "is not a JSON object"),
    "no object": (answer(b"[]"), "is not a JSON object"),
    "deep": (answer(b'{"a":' * 100_000), "is not a JSON object"),
    "no text": (answer(b'{"a": "\xff"}'), "is not a JSON object"),
    "empty": (answer(b""), "is not a JSON object"),
    "cut": (answer(b'{"kind": "Po', length=5000), ""),
    "cut header": (b"HTTP/1.1 200 OK\r\nContent-Type: appl", ""),
    "another type": (answer(OBJECT, "200 OK", "Content-Type: text/html"), "'text/html', not application/json"),
    "no type": (answer(OBJECT, "200 OK", "X: y"), "'', not application/json"),
    "gzip that was not asked for": (
        answer(gzip.compress(OBJECT), "200 OK", JSON, "Content-Encoding: gzip"),
        "JSON object",
    ),
    "redirect": (answer(OBJECT, "302 Found", "Location: https://localhost:1/"), "HTTP 302"),
    "no HTTP": (b"\x00\x01SSH-2.0\r\n\r\n", ""),
    "many headers": (b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 1000 + b"\r\n", "100 headers"),
    "a long header": (b"HTTP/1.1 200 OK\r\na: " + b"b" * 100_000 + b"\r\n\r\n", "65536 bytes"),
    "nothing": (b"", ""),
}


@pytest.mark.parametrize(("lie", "words"), LIES.values(), ids=LIES.keys())
def test_answer_that_is_no_answer_fails_and_the_next_request_succeeds(
    server: RawServer, client: ApiServer, lie: bytes, words: str
) -> None:
    def lie_and_hang_up(connection: socket.socket) -> None:
        connection.sendall(lie)
        raise OSError

    server.script = lie_and_hang_up
    error = failure(client, get(POD))
    assert server.closed.wait(20)  # a request on a connection that closes at this moment fails (docs/decisions/0037)
    server.script = saying(answer(OBJECT, "200 OK", JSON))

    assert words in str(error)
    assert client.send(get(POD)) == {"kind": "Pod"}
    assert len(server.requests) == 2  # the redirect was not followed


def test_huge_answer_is_not_read_to_its_end_and_its_connection_is_not_used_again(
    server: RawServer, client: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "_MAX_ANSWER_BYTES", 1000)

    def flood(connection: socket.socket) -> None:
        connection.sendall(answer(b"", length=1 << 40))
        while True:
            connection.sendall(b"x" * 65536)  # until the client hangs up

    server.script = flood
    error = failure(client, get(POD))
    server.script = saying(answer(b'{"a": "%s"}' % (b"x" * 992)))  # of 1001 bytes
    too_long = failure(client, get(POD))
    server.script = saying(answer(b'{"a": "%s"}' % (b"x" * 991)))

    assert "more than 1000 bytes" in str(error)
    assert "more than 1000 bytes" in str(too_long)
    assert len(client.send(get(POD))["a"]) == 991


def drip(server: RawServer, begin: bytes, byte: bytes) -> None:
    def script(connection: socket.socket) -> None:
        connection.sendall(begin)
        while not server.ended.wait(0.02):
            connection.sendall(byte)

    server.script = script


def test_timeout_of_a_socket_is_not_set_again_for_each_byte(
    server: RawServer, client: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    times: list[float | None] = []
    set_timeout = ssl.SSLSocket.settimeout

    def counted(connection: ssl.SSLSocket, seconds: float | None) -> None:
        times.append(seconds)
        set_timeout(connection, seconds)

    monkeypatch.setattr(ssl.SSLSocket, "settimeout", counted)
    head_and_body = answer(json.dumps({"kind": "x" * 200}).encode())

    def byte_by_byte(connection: socket.socket) -> None:
        for index in range(len(head_and_body)):
            connection.send(head_and_body[index : index + 1])

    server.script = byte_by_byte
    client.send(get(POD))
    assert 0 < len(times) < 20


@pytest.mark.slow
@pytest.mark.parametrize(
    ("begin", "byte"),
    [
        (b"", b""),
        (b"HTTP/1.1 200 OK\r\nX: ", b"x"),
        (answer(b"", length=1 << 40), b" "),
        (b"HTTP/1.1 200 OK\r\n%s\r\nTransfer-Encoding: chunked\r\n\r\n" % JSON.encode(), b"1\r\n \r\n"),
    ],
    ids=["silence", "headers without an end", "a body byte by byte", "chunk by chunk"],
)
def test_slow_answer_ends_in_time_as_a_whole(
    server: RawServer, new_client: Callable[[float], ApiServer], begin: bytes, byte: bytes
) -> None:
    drip(server, begin, byte)

    error = failure(new_client(0.3), get(POD))

    assert "timed out" in str(error).lower()
    assert error.temporary


def test_server_that_accepts_but_never_begins_tls_is_left(
    server: RawServer, new_client: Callable[[float], ApiServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_serve_one", lambda plain: (server.ended.wait(), plain.close()))

    assert "timed out" in str(failure(new_client(0.2), get(POD))).lower()


@pytest.mark.slow
def test_request_that_is_never_read_ends_in_time(server: RawServer, new_client: Callable[[float], ApiServer]) -> None:
    server.reads = False

    assert "timed out" in str(failure(new_client(0.5), create(EVENT, {"a": "x" * (32 << 20)}))).lower()


def test_nothing_listens_is_a_temporary_failure(server: RawServer, client: ApiServer) -> None:
    server.close()

    error = failure(client, get(POD))

    assert "Connection refused" in str(error)
    assert (error.status, error.temporary) == (0, True)


def test_api_server_that_restarts_is_reached_again(server: RawServer, client: ApiServer) -> None:
    def die(connection: socket.socket) -> None:
        connection.sendall(answer())
        raise OSError

    server.script = die
    assert client.send(get(POD)) == {"kind": "Pod"}
    server.script = saying(answer())

    with suppress(RequestFailed):  # a request on the kept connection, which was just closed
        client.send(get(POD))

    assert client.send(get(POD)) == {"kind": "Pod"}


def test_token_is_read_again_when_kubelet_has_replaced_it(server: RawServer, client: ApiServer) -> None:
    client.send(get(POD))
    (server.folder / "token").write_text("another-token\n")
    client.send(get(POD))

    assert [b"Bearer another-token\r\n" in request for request in server.requests] == [False, True]


@pytest.mark.parametrize(
    "text", ["two\nlines", "", "\n", "ü", "x" * 100_000], ids=["lines", "empty", "blank", "odd", "long"]
)
def test_text_that_is_no_token_is_not_sent_and_not_shown(server: RawServer, client: ApiServer, text: str) -> None:
    (server.folder / "token").write_text(text)

    error = failure(client, get(POD))

    assert str(error) == f"cannot {get(POD)}: {server.folder}/token holds no token"
    assert server.requests == []


def test_token_that_is_missing_is_a_temporary_failure(server: RawServer, client: ApiServer) -> None:
    (server.folder / "token").unlink()

    error = failure(client, get(POD))

    assert "No such file" in str(error)
    assert error.temporary


def test_rotated_authority_is_trusted_from_the_next_request_on_and_the_old_one_no_more(
    server: RawServer, client: ApiServer
) -> None:
    client.send(get(POD))
    pem = server.use_new_authority()
    (server.folder / "ca.crt").write_bytes(pem)

    assert client.send(get(POD)) == {"kind": "Pod"}
    assert server.connections == 2

    stranger = server.use_new_authority()
    assert stranger != pem
    (server.folder / "ca.crt").write_bytes(pem + b"\n")  # the same authority, but another connection
    assert "CERTIFICATE_VERIFY_FAILED" in str(failure(client, get(POD)))
    assert len(server.requests) == 2  # the token was not sent


@pytest.mark.parametrize("damaged", [b"", b"rubbish"])
def test_damaged_authority_is_never_replaced_by_those_of_the_system(
    server: RawServer, client: ApiServer, damaged: bytes
) -> None:
    (server.folder / "ca.crt").write_bytes(damaged)

    assert failure(client, get(POD)).temporary
    assert server.requests == []


def test_certificate_of_another_host_is_refused(server: RawServer, client: ApiServer, tmp_path: Path) -> None:
    account = ServiceAccount("127.0.0.1", int(server.environment["KUBERNETES_SERVICE_PORT"]), server.folder)
    for new in TRANSPORTS.values():
        error = failure(ApiServer(new(account, 20.0), account.token, "x"), get(POD))
        assert "IP address mismatch" in str(error)
    assert server.requests == []


def test_only_the_transport_of_the_webhook_keeps_its_connection(
    server: RawServer, new_client: Callable[[float], ApiServer], request: pytest.FixtureRequest
) -> None:
    client = new_client(20.0)
    for _ in range(3):
        client.send(get(POD))
    server.script = saying(answer(b'{"message": "no"}', "404 Not Found"))
    failure(client, get(POD))
    failure(client, get(POD))

    assert server.connections == (1 if isinstance(client._transport, KubernetesTransport) else 5)


def test_ipv6_address_of_the_api_server_is_reached(tmp_path: Path) -> None:
    account = ServiceAccount("::1", 1, tmp_path)
    (tmp_path / "token").write_text("x")
    with serving(tmp_path / "account") as found:
        (tmp_path / "ca.crt").write_bytes((found.folder / "ca.crt").read_bytes())
        for new in TRANSPORTS.values():
            error = failure(ApiServer(new(account, 20.0), account.token, "x"), get(POD))
            assert "Connection refused" in str(error) or "Cannot assign" in str(error)


def test_time_for_an_answer_begins_again_on_a_kept_connection(
    server: RawServer, client: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(tls, "time", SimpleNamespace(monotonic=lambda: now[0]))
    for _ in range(4):
        client.send(get(POD))
        now[0] += 15.0

    assert len(server.requests) == 4


def test_authorities_that_lack_extensions_are_trusted(server: RawServer) -> None:
    assert not tls.trusting(server.folder / "ca.crt").verify_flags & ssl.VERIFY_X509_STRICT


def test_delete_arrives_with_its_precondition_and_its_query_is_kept(server: RawServer, client: ApiServer) -> None:
    client.send(delete(EVENT, "u-1"))
    client.send(list_page(Collection("v1", "pods", labels="a in (b, c)"), 5))

    head, _, body = server.requests[0].partition(b"\r\n\r\n")
    assert head.startswith(b"DELETE /api/v1/namespaces/ml/events/train-0.x HTTP/1.1\r\n")
    assert b"content-type: application/json\r\n" in head.lower() + b"\r\n"
    assert json.loads(body) == {"preconditions": {"uid": "u-1"}, "propagationPolicy": "Background"}
    assert server.requests[1].startswith(b"GET /api/v1/pods?labelSelector=a+in+%28b%2C+c%29&limit=5 HTTP/1.1\r\n")


def test_delete_of_another_object_of_the_same_name_is_a_conflict(server: RawServer, client: ApiServer) -> None:
    server.script = saying(answer(b'{"message": "the UID in the precondition does not match"}', "409 Conflict"))

    assert type(failure(client, delete(EVENT, "u-1"))) is Conflict


def test_list_that_is_gone_is_expired(server: RawServer, client: ApiServer) -> None:
    server.script = saying(answer(b'{"message": "too old"}', "410 Gone"))

    error = failure(client, list_page(Collection("v1", "pods"), 5))

    assert (type(error), error.status, str(error)) == (Expired, 410, "cannot list pods: too old")
