"""HTTP without TLS: /healthz while the event loop runs, /readyz with the reasons why the node is not served, and /metrics.

The node has one port for its daemon. A daemon that waits for the end of another daemon takes the port when it is free. The
admission helper's port belongs to its pod.

Every local user reaches the daemon's port. So a connection holds one descriptor and a few KiB, there are few, and the oldest that has not
asked is closed for the next: kubelet's probe asks as soon as it is connected (docs/decisions/0040).
"""

import asyncio
import logging
import re
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import Generic, TypeVar

from railnet.kernel.sockets.batched_tcp_listener import Acceptor, close_after_sending, listening

_log = logging.getLogger(__name__)
_Value = TypeVar("_Value")
_LOOPBACK = "127.0.0.1"
_PATIENCE_SECONDS = 5.0  # for a request and for its answer; kubelet's probes wait as long
_RETRY_SECONDS = 1.0
_MAX_CONNECTIONS = 128  # the daemon itself needs far fewer descriptors than the rest of 1,024, the smallest usual limit
_HEAD_BYTES = 4 << 10  # a request of kubelet, Prometheus or curl has 100 to 500 bytes
# A request comes in one piece, or a few; a client that sends byte by byte costs a round of the loop for each.
_MAX_READS = 16
_KERNEL_BYTES = 4 << 10  # SO_RCVBUF: the kernel, too, keeps few bytes of a client
_BACKLOG = 4096  # net.core.somaxconn; a probe beyond it is dropped, and kubelet's kernel tries again after a second
_END_OF_HEAD = re.compile(rb"\n\r?\n")
_LARGEST_WAIT_SECONDS = 1.0
# A value is made again after so many times the time that it took: at most a twentieth of the loop's time.
_IDLE_SHARES = 20


@dataclass(frozen=True, slots=True)
class Pages:
    """What a program answers at one stage of its life.

    Attributes:
        reasons: returns why the program does not serve; empty if it does.
        before_metrics: is awaited before that, and ends within `_PATIENCE_SECONDS`. None if the text needs no preparation.
    """

    reasons: Callable[[], list[str]]
    metrics: Callable[[], str] = str
    before_metrics: Callable[[], Awaitable[None]] | None = None


class Health:
    """The answers on one port. It is there before what it tells of, so a program shows other pages when it serves."""

    __slots__ = ("_pages", "_ready", "_text")

    def __init__(self, pages: Pages | None = None) -> None:
        """Answer by these pages; without any, be not ready."""
        self.show(pages or Pages(lambda: ["it is starting"]))

    def show(self, pages: Pages) -> None:
        """Answer by these pages from now on."""
        self._pages = pages
        self._ready = _Recent(lambda: "".join(f"{reason}\n" for reason in pages.reasons()))
        self._text = _Recent(pages.metrics)

    def reasons(self) -> list[str]:
        """Return why the program does not serve; empty if it does."""
        return self._pages.reasons()

    @asynccontextmanager
    async def serving(self, port: int, host: str | None = _LOOPBACK) -> AsyncIterator[None]:
        """Answer on a port, from when it is free until the end of the block; on all addresses if `host` is None."""
        task = asyncio.create_task(self._serve(port, host))
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    def answer(self, request: str) -> tuple[HTTPStatus, str]:
        """Answer a request line; /readyz with one line of text for each reason."""
        method, _, rest = request.partition(" ")
        path = _path(rest)
        if method not in ("GET", "HEAD"):
            return HTTPStatus.METHOD_NOT_ALLOWED, "only GET is answered\n"
        if path == "/healthz":
            return HTTPStatus.OK, "ok\n"
        if path == "/metrics":
            return HTTPStatus.OK, self._text.value()
        if path != "/readyz":
            return HTTPStatus.NOT_FOUND, "there are /healthz, /readyz and /metrics\n"
        reasons = self._ready.value()
        return (HTTPStatus.SERVICE_UNAVAILABLE, reasons) if reasons else (HTTPStatus.OK, "ok\n")

    def preparation(self, request: str) -> Callable[[], Awaitable[None]] | None:
        """Return what must be called and awaited before a request line is answered; None if it is answered at once."""
        method, _, rest = request.partition(" ")
        return self._pages.before_metrics if method == "GET" and _path(rest) == "/metrics" else None

    async def _serve(self, port: int, host: str | None) -> None:
        listener = await _bound(port, host)
        clients = _Clients(self.answer, self.preparation)
        acceptor = Acceptor(listener, clients.welcome, clients.close)
        try:
            await asyncio.Event().wait()
        finally:
            acceptor.close()
            clients.close()


def _path(rest: str) -> str:
    return rest.partition(" ")[0].partition("?")[0]


async def _bound(port: int, host: str | None) -> socket.socket:
    """Return the listening socket when the port is free."""
    is_logged = False
    while True:
        try:
            return listening(host, port, backlog=_BACKLOG, read_bytes=_KERNEL_BYTES)
        except OSError as error:
            if not is_logged:
                _log.warning("health is not answered on %s:%d yet: %s", host or "*", port, error.strerror)
            is_logged = True
        await asyncio.sleep(_RETRY_SECONDS)


class _Recent(Generic[_Value]):
    """A value that is made again only after a pause, so that many requests for it cost no more than a share of the time."""

    def __init__(self, make: Callable[[], _Value]) -> None:
        self._make = make
        self._made: tuple[_Value, float] | None = None

    def value(self) -> _Value:
        began = time.monotonic()
        if self._made is None or began >= self._made[1]:
            value = self._make()
            ended = time.monotonic()
            self._made = value, ended + min(_LARGEST_WAIT_SECONDS, _IDLE_SHARES * (ended - began))
        return self._made[0]


class _Client:
    """A connection: what has come of its request, what prepares its answer, and what is still to be sent of its answer."""

    __slots__ = ("answer", "ends", "preparing", "reads", "request", "socket")

    def __init__(self, connection: socket.socket, ends: float) -> None:
        self.socket, self.ends = connection, ends
        self.request, self.reads, self.answer = b"", 0, b""
        self.preparing: asyncio.Task[None] | None = None


class _Clients:
    """The connections of a port, oldest first. Each method ends a connection that fails, and raises nothing."""

    def __init__(
        self,
        answer: Callable[[str], tuple[HTTPStatus, str]],
        preparation: Callable[[str], Callable[[], Awaitable[None]] | None],
    ) -> None:
        self._answer, self._preparation = answer, preparation
        self._loop = asyncio.get_running_loop()
        self._open: dict[_Client, None] = {}
        self._sweep: asyncio.TimerHandle | None = None

    def welcome(self, connection: socket.socket, _address: str, *, crowded: bool) -> None:
        """Own a new connection. One that has sent its whole request already is answered at once, however many there are.

        In a crowd each has waited in the kernel for longer than a probe needs to ask, so one that has not asked is closed. That costs a
        fifth of what it costs to keep it until another takes its place.
        """
        part = _received(connection, _HEAD_BYTES)
        if part == b"" or (crowded and not _END_OF_HEAD.search(part or b"")):
            connection.close()
            return
        client = _Client(connection, self._loop.time() + _PATIENCE_SECONDS)
        self._open[client] = None
        self._take(client, part)
        if client not in self._open:
            return
        if len(self._open) > _MAX_CONNECTIONS:
            self._end(next(iter(self._open)))
        if self._sweep is None:
            self._sweep = self._loop.call_later(_PATIENCE_SECONDS, self._end_old)

    def close(self) -> None:
        """End all connections."""
        for client in tuple(self._open):
            self._end(client)
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None

    def _end_old(self) -> None:
        now = self._loop.time()
        while self._open and (oldest := next(iter(self._open))).ends <= now:
            self._end(oldest)
        self._sweep = self._loop.call_at(oldest.ends, self._end_old) if self._open else None

    def _end(self, client: _Client) -> None:
        self._open.pop(client, None)
        if client.preparing is not None:  # else each new connection would leave one
            client.preparing.cancel()
        if client.socket.fileno() >= 0:
            self._loop.remove_reader(client.socket)
            self._loop.remove_writer(client.socket)
            client.socket.close()

    def _read(self, client: _Client) -> None:
        self._take(client, _received(client.socket, _HEAD_BYTES - len(client.request)))

    def _take(self, client: _Client, part: bytes | None) -> None:
        client.request += part or b""
        client.reads += part is not None
        if _END_OF_HEAD.search(client.request):
            self._reply(client)
        elif part == b"" or client.reads >= _MAX_READS or len(client.request) >= _HEAD_BYTES:
            self._end(client)
        else:
            self._loop.add_reader(client.socket, self._read, client)

    def _reply(self, client: _Client) -> None:
        self._loop.remove_reader(client.socket)
        try:
            line = client.request.partition(b"\n")[0].decode("ascii")
        except UnicodeDecodeError:
            self._end(client)
            return
        line = line.rstrip("\r")
        preparation = self._preparation(line)
        if preparation is None:
            self._send(client, line)
            return
        client.preparing = self._loop.create_task(self._prepare(preparation, client, line))

    async def _prepare(self, preparation: Callable[[], Awaitable[None]], client: _Client, line: str) -> None:
        try:
            await preparation()
        except Exception:  # noqa: BLE001 - the page is as current as it was
            _log.exception("health answers %.80r without preparation; report this error", line)
        client.preparing = None
        if client in self._open:
            self._send(client, line)

    def _send(self, client: _Client, line: str) -> None:
        try:
            status, text = self._answer(line)
        except Exception:  # noqa: BLE001 - a page that cannot be made ends its own request alone
            _log.exception("health has no answer to %.80r; report this error", line)
            status, text = HTTPStatus.INTERNAL_SERVER_ERROR, "see the log\n"
        close_after_sending(client.socket)
        client.answer = _response(status, text.encode(), with_body=not line.startswith("HEAD"))
        self._write(client)

    def _write(self, client: _Client) -> None:
        try:
            client.answer = client.answer[client.socket.send(client.answer) :]
        except (BlockingIOError, InterruptedError):
            pass
        except OSError:
            client.answer = b""
        if client.answer:
            self._loop.add_writer(client.socket, self._write, client)
        else:
            self._end(client)


def _received(connection: socket.socket, size: int) -> bytes | None:
    """Return what has come; None if nothing has come yet, and no bytes at the end of the connection."""
    try:
        return connection.recv(size)
    except (BlockingIOError, InterruptedError):
        return None
    except OSError:
        return b""


def _response(status: HTTPStatus, body: bytes, *, with_body: bool) -> bytes:
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + (body if with_body else b"")
