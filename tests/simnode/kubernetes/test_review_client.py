"""The simulated API server's reviews: a late answer and an answer without rails are failures; a closed connection is replaced once."""

import base64
import json
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest

from railnet.admission.certificates import authority
from simnode.kubernetes.review_client import NAME, ReviewClient, ReviewFailed, request

VF = [{"op": "add", "path": "/spec/containers/0/resources", "value": {}}]
OTHER = [{"op": "add", "path": "/metadata/annotations", "value": {}}]


def answer(patch: object, status: str = "200 OK") -> bytes:
    response = {"uid": "u", "allowed": True}
    if patch is not None:
        response |= {"patchType": "JSONPatch", "patch": base64.b64encode(json.dumps(patch).encode()).decode()}
    body = json.dumps({"response": response}).encode()
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


class Server:
    """A server that has the answers for each of its connections in turn, and closes a connection after its last answer."""

    def __init__(self, folder: Path, connections: list[list[bytes]]) -> None:
        made = authority.make(datetime.now(UTC))
        leaf = authority.sign(made, [NAME], datetime.now(UTC))
        (folder / "both.pem").write_bytes(leaf.chain.rstrip() + b"\n" + leaf.key)
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(folder / "both.pem")
        self.authority = authority.certificate_pem([made.certificate])
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.listener.getsockname()[1]
        self._connections = connections
        self.requests: list[bytes] = []

    def serve(self) -> None:
        for answers in self._connections:
            plain, _ = self.listener.accept()
            with self._context.wrap_socket(plain, server_side=True) as connection, suppress(OSError):
                for one in answers:
                    self.requests.append(self._request(connection))
                    connection.sendall(one)

    def _request(self, connection: ssl.SSLSocket) -> bytes:
        found = b""
        while len(found) < len(request()):
            found += connection.recv(1 << 16)
        return found


@contextmanager
def serving(folder: Path, *connections: list[bytes]) -> Iterator[Server]:
    server = Server(folder, list(connections))
    thread = threading.Thread(target=server.serve, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        thread.join(20)
        server.listener.close()
        assert not thread.is_alive()


@contextmanager
def client(server: Server, limit_seconds: float = 5.0) -> Iterator[ReviewClient]:
    made = ReviewClient(server.port, server.authority, limit_seconds)
    try:
        yield made
    finally:
        made.close()


def test_review_keeps_its_connection(tmp_path: Path) -> None:
    with serving(tmp_path, [answer(VF), answer(VF)]) as server, client(server) as reviews:
        assert all(reviews.review() > 0 for _ in range(2))

    assert len(server.requests) == 2


def test_kept_connection_that_is_closed_is_replaced(tmp_path: Path) -> None:
    with serving(tmp_path, [answer(VF)], [answer(VF)]) as server, client(server) as reviews:
        assert all(reviews.review() > 0 for _ in range(2))


def test_new_connection_that_is_closed_is_a_failure(tmp_path: Path) -> None:
    with (
        serving(tmp_path, [b""]) as server,
        client(server) as reviews,
        pytest.raises(ReviewFailed, match="a review got no answer"),
    ):
        reviews.review()


def test_answer_that_is_late_is_a_failure(tmp_path: Path) -> None:
    with (
        serving(tmp_path) as server,
        client(server, limit_seconds=0.2) as reviews,
        pytest.raises(ReviewFailed, match="a review got no answer: TimeoutError"),
    ):
        reviews.review()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (answer(None), "has no patch"),
        (answer(OTHER), "gives the pod no VF"),
        (answer(VF, "500 Internal Server Error"), "status 500"),
    ],
    ids=["no patch", "another patch", "an error"],
)
def test_answer_without_rails_is_a_failure(tmp_path: Path, given: bytes, said: str) -> None:
    with serving(tmp_path, [given]) as server, client(server) as reviews, pytest.raises(ReviewFailed, match=said):
        reviews.review()
