"""A proxy in front of the API server that passes everything on, and does what only a failing server or network does.

It shows the certificate of the API server. Each connection of a client has one to the API server.
"""

import contextlib
import http.client
import json
import socket
import ssl
import threading
from collections.abc import Callable, Collection, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from types import TracebackType
from typing import NamedTuple, Self

from tests.control_plane.api import Api

_WRITES = ("POST", "PATCH", "DELETE")
_SECONDS = 60.0
_PIECE_BYTES = 64 << 10


class Passed(NamedTuple):
    """A request of a client.

    Attributes:
        method: of HTTP.
        path: with the query.
        send: passes the request on, and returns the API server's answer.
    """

    method: str
    path: str
    send: Callable[[], "Answer"]

    def writes(self, resources: Collection[str]) -> bool:
        """Return whether it writes objects of one of the resources, or subresources of them. A status has a name of its own: `pods/status`."""
        path = self.path.partition("?")[0]
        parts = path.split("/")
        written = {f"{part}/status" for part in parts} if path.endswith("/status") else set(parts)
        return self.method in _WRITES and "namespaces" in parts and not written.isdisjoint(resources)


class Answer(NamedTuple):
    """A whole answer."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes


Fault = Callable[[Passed], Answer]
"""What becomes of the requests that are no watches."""


def none(passed: Passed) -> Answer:
    return passed.send()


def killed(kill: Callable[[], None], resources: Collection[str], *, before: bool) -> Fault:
    """Return the fault that kills a client at its first write of some resources: before it is done, or before the client knows it."""
    alone, for_ever = threading.Lock(), threading.Event()

    def fault(passed: Passed) -> Answer:
        if not passed.writes(resources):
            return passed.send()
        if not alone.acquire(blocking=False):  # one write at a time: it is done once or not at all
            for_ever.wait(_SECONDS)
            raise ConnectionAbortedError("the client is dead")
        if before:
            kill()
            raise ConnectionAbortedError("the client is dead")
        answer = passed.send()
        kill()
        return answer

    return fault


def refused(resources: Collection[str]) -> Fault:
    """Return the fault that answers every other write of some resources with 429."""
    numbers = count()

    def fault(passed: Passed) -> Answer:
        if passed.writes(resources) and next(numbers) % 2 == 0:
            body = json.dumps({"kind": "Status", "apiVersion": "v1", "message": "too many requests", "code": 429})
            return Answer(429, [("Content-Type", "application/json"), ("Retry-After", "1")], body.encode())
        return passed.send()

    return fault


class ApiProxy:
    """A context manager; `host` and `port` are where clients find it.

    Attributes:
        fault: what becomes of requests.
    """

    def __init__(self, api: Api) -> None:
        """Stand in front of the API server of a client."""
        self.fault: Fault = none
        self.api = api
        self.host = api.host.partition(":")[0]
        self.watches: set[socket.socket] = set()
        self.are_watches_cut = False
        self._server = _Server((self.host, 0), self)
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @contextlib.contextmanager
    def without_watches(self) -> Iterator[None]:
        """Cut the watches that there are, and let no other begin in the block."""
        self.are_watches_cut = True
        for one in tuple(self.watches):
            one.shutdown(socket.SHUT_RDWR)
        try:
            yield
        finally:
            self.are_watches_cut = False


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], proxy: ApiProxy) -> None:
        super().__init__(address, _Handler)
        self.proxy = proxy
        authority = proxy.api.authority
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(authority, authority.with_suffix(".key"))
        self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: clients die and connections break here by design."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def setup(self) -> None:
        super().setup()
        self._upstream = http.client.HTTPSConnection(
            self.server.proxy.api.host,
            timeout=_SECONDS,
            context=ssl.create_default_context(cafile=str(self.server.proxy.api.authority)),
        )

    def finish(self) -> None:
        self._upstream.close()
        with contextlib.suppress(OSError):
            super().finish()

    def do_GET(self) -> None:
        if "watch=" in self.path:
            self._watch()
        else:
            self._pass_on()

    def do_POST(self) -> None:
        self._pass_on()

    def do_PUT(self) -> None:
        self._pass_on()

    def do_PATCH(self) -> None:
        self._pass_on()

    def do_DELETE(self) -> None:
        self._pass_on()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the class above
        """Write no log."""

    def _pass_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))

        def send() -> Answer:
            with self._sent(body) as response:
                return Answer(response.status, response.getheaders(), response.read())

        answer = self.server.proxy.fault(Passed(self.command, self.path, send))
        self._head(answer.status, answer.headers)
        self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        self.wfile.write(answer.body)

    def _watch(self) -> None:
        proxy = self.server.proxy
        if proxy.are_watches_cut:
            raise ConnectionAbortedError("the test lets no watch begin")
        with self._sent(b"") as response:
            connection: socket.socket = self._upstream.sock
            proxy.watches.add(connection)
            try:
                self._head(response.status, response.getheaders())
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                while (piece := response.read1(_PIECE_BYTES)) and not proxy.are_watches_cut:
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
                self.close_connection = True
            finally:
                proxy.watches.discard(connection)

    def _sent(self, body: bytes) -> http.client.HTTPResponse:
        self._upstream.request(self.command, self.path, body or None, dict(self.headers.items()))
        return self._upstream.getresponse()

    def _head(self, status: int, headers: list[tuple[str, str]]) -> None:
        self.send_response_only(status)
        for name, value in headers:
            if name.lower() not in ("content-length", "transfer-encoding", "connection"):
                self.send_header(name, value)
