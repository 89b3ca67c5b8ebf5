"""The connections of the webhook's port, from the kernel's queue to their end: how many there are, and which is closed for another.

TLS and HTTP cost memory and time as soon as they begin. So a connection is a bare socket until its first byte has come, and handshakes
begin one by one. `railnet.admission.server.server` limits what a request may cost. docs/decisions/0040 has the reasons.
"""

import asyncio
import fcntl
import socket
import sys
import termios
from collections.abc import Callable

from aiohttp.web_protocol import RequestHandler

from railnet.admission.server.client_shares import Shares, client_of
from railnet.admission.tls import Shown
from railnet.kernel.sockets.batched_tcp_listener import Acceptor, close_after_sending, listening

_MAX_SILENT = 256  # sockets only: about 3 KiB each, in the kernel
_SILENT_IN_A_CROWD = (
    16  # of each client; others have waited in the kernel for longer than an API server needs to send its first byte
)
_MAX_HANDSHAKES = 64  # about 80 KiB each
# Connections after their handshake: about 70 KiB each if idle, at most 290 KiB in the middle of a body. An API server has a few hundred
# requests in flight at most (--max-mutating-requests-inflight), keeps few connections, and there are two replicas. All three limits together
# fit into 1,024 descriptors, the smallest usual limit.
_MAX_OPEN = 300
_BACKLOG = 4096  # net.core.somaxconn; a client beyond it tries again after a second
_KERNEL_BYTES = 32 << 10  # SO_RCVBUF and SO_SNDBUF of each connection; the kernel doubles them
_SILENT_SECONDS = 5.0
_SHUTDOWN_SECONDS = 2.0  # for a client's part of the end of TLS
_FRESH_SECONDS = 1.0  # an API server sends its first request as soon as the handshake is done
_UNREAD_BYTES, _UNREAD_SECONDS = 16 << 20, 10.0  # of all answers that clients do not read
_LARGE_ANSWER_BYTES = 16 << 10
_TICK_SECONDS = 1.0
_TLS_HANDSHAKE = b"\x16"  # RFC 8446, ContentType: the first byte of a ClientHello


class Connection:
    """One connection after its first byte.

    Attributes:
        socket: the socket; asyncio's transport owns it from the handshake on.
        client: whose share it takes.
        protocol: its HTTP, from the handshake on.
        asked: whether it has sent a request.
        busy: whether a request is not answered yet.
        proven: whether it has had a valid review.
        active: when it was made or its handshake ended, or when it had its latest request or answer (the loop's time).
        unread: bytes of answers that the client may not have read.
    """

    __slots__ = ("active", "asked", "busy", "client", "protocol", "proven", "socket", "unread")

    def __init__(self, connection: socket.socket, client: str, now: float) -> None:
        self.socket, self.client, self.active = connection, client, now
        self.protocol: RequestHandler | None = None
        self.asked, self.busy, self.proven, self.unread = False, False, False, 0


class Connections:
    """All connections of the port."""

    def __init__(self, shown: Shown, http: Callable[[], RequestHandler], first_seconds: float) -> None:
        """Present the certificate of `shown`; `http` makes a connection's protocol. A handshake, and then a request, come in `first_seconds`."""
        self._shown, self._http, self._first_seconds = shown, http, first_seconds
        self._loop = asyncio.get_running_loop()
        self._silent, self._handshakes, self._open = Shares[Connection](), Shares[Connection](), Shares[Connection]()
        self._ready = Shares[Connection]()  # those of the silent ones whose first byte has come
        self._by_protocol: dict[RequestHandler, Connection] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._begins = False
        self._acceptor: Acceptor | None = None
        self._tick: asyncio.TimerHandle | None = None

    @property
    def port(self) -> int:
        """The port; 0 before `listen`."""
        return 0 if self._acceptor is None else self._acceptor.port

    @property
    def accepts(self) -> bool:
        """True if new connections are accepted."""
        return self._acceptor is not None and self._acceptor.open

    def listen(self, host: str | None, port: int) -> None:
        """Accept connections.

        Raises:
            OSError: the port is taken.
        """
        listener = listening(host, port, backlog=_BACKLOG, read_bytes=_KERNEL_BYTES)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _KERNEL_BYTES)
        self._acceptor = Acceptor(listener, self._welcome, self._end_silent)
        self._look_after()

    def refuse(self) -> None:
        """Accept no more, and end those that have not completed their handshake."""
        if self._acceptor is not None:
            self._acceptor.close()
        if self._tick is not None:
            self._tick.cancel()
        self._end_silent()
        for connection in self._handshakes.all():
            self._end(connection)

    def began(self, protocol: RequestHandler) -> None:
        """Note that a request has begun."""
        if (connection := self._by_protocol.get(protocol)) is not None:
            connection.asked, connection.busy, connection.active = True, True, self._loop.time()

    def answered(self, protocol: RequestHandler, size: int, *, reviewed: bool) -> None:
        """Note that a request has its answer of so many bytes; `reviewed` if the request was a valid review."""
        if (connection := self._by_protocol.get(protocol)) is None:
            return
        connection.busy, connection.active = False, self._loop.time()
        connection.proven |= reviewed
        connection.unread += size
        if size > _LARGE_ANSWER_BYTES:
            self._end_unread()

    def _welcome(self, accepted: socket.socket, address: str, *, crowded: bool) -> None:
        first = _first_byte(accepted)
        client = client_of(address)
        if first not in (None, _TLS_HANDSHAKE) or (
            crowded and first is None and self._silent.count(client) >= _SILENT_IN_A_CROWD
        ):
            accepted.close()
            return
        connection = Connection(accepted, client, self._loop.time())
        self._silent.add(connection.client, connection)
        if first is None:
            self._loop.add_reader(accepted, self._look, connection)
        else:
            self._put_in_line(connection)
        if len(self._silent) > _MAX_SILENT:
            self._end(self._silent.oldest_of_the_largest())

    def _look(self, connection: Connection) -> None:
        first = _first_byte(connection.socket)
        if first == _TLS_HANDSHAKE:
            self._loop.remove_reader(connection.socket)
            self._put_in_line(connection)
        elif first is not None:
            self._end(connection)

    def _put_in_line(self, connection: Connection) -> None:
        self._ready.add(connection.client, connection)
        if not self._begins:
            self._begins = True
            self._loop.call_soon(self._begin)

    def _begin(self) -> None:
        """Begin one handshake, and another in the next round of the loop: a handshake takes as long as several reviews."""
        if self._ready:
            client = min(self._ready.clients(), key=self._handshakes.count)
            connection = self._ready.newest(client)
            self._ready.discard(connection)
            self._silent.discard(connection)
            self._handshakes.add(client, connection)
            if len(self._handshakes) > _MAX_HANDSHAKES:
                self._end(self._handshakes.oldest_of_the_largest())
            task = self._loop.create_task(self._shake_hands(connection))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        self._begins = bool(self._ready)
        if self._begins:
            self._loop.call_soon(self._begin)

    async def _shake_hands(self, connection: Connection) -> None:
        protocol = self._http()
        connection.protocol = protocol
        self._by_protocol[protocol] = connection
        try:
            close_after_sending(connection.socket)
            await self._loop.connect_accepted_socket(
                lambda: protocol,
                connection.socket,
                ssl=self._shown.context,
                ssl_handshake_timeout=self._first_seconds,
                ssl_shutdown_timeout=_SHUTDOWN_SECONDS,
            )
        except OSError:  # also each error of TLS
            self._forget(connection)
            connection.socket.close()
            return
        if connection not in self._handshakes:  # it was closed for another meanwhile
            self._end(connection)
            return
        self._handshakes.discard(connection)
        connection.active = self._loop.time()
        self._open.add(connection.client, connection)
        if len(self._open) > _MAX_OPEN:
            self._forget_closed()
        if len(self._open) > _MAX_OPEN:
            self._end(self._least_worth(connection))

    def _least_worth(self, new: Connection) -> Connection:
        """Return which connection is closed for a new one.

        An idle one that has had no review, else one of the client that has the most. All connections without a review count as one client's,
        since clients of many addresses have one each, and an API server has several. Of these the oldest is closed: an API server's review
        is answered within milliseconds.
        """
        fresh = self._loop.time() - _FRESH_SECONDS

        def worth(connection: Connection) -> tuple[bool, bool, float]:
            return connection.busy, connection.proven or connection.active > fresh, connection.active

        others = [connection for connection in self._open.all() if connection is not new]
        if useless := [connection for connection in others if worth(connection)[:2] == (False, False)]:
            return min(useless, key=worth)
        unproven, largest = [connection for connection in others if not connection.proven], self._open.largest()
        if len(unproven) >= self._open.count(largest):
            return unproven[0]
        return min(
            (connection for connection in self._open.of(largest) if connection is not new), key=worth, default=new
        )

    def _look_after(self) -> None:
        """End what has been silent or unread for too long; again and again."""
        self._tick = self._loop.call_later(_TICK_SECONDS, self._look_after)
        self._forget_closed()
        now = self._loop.time()
        silent = (connection for connection in self._silent.all() if now - connection.active > _SILENT_SECONDS)
        idle = (
            connection
            for connection in self._open.all()
            if not connection.asked and now - connection.active > self._first_seconds
        )
        for connection in (*silent, *idle):
            self._end(connection)
        self._end_unread()

    def _end_unread(self) -> None:
        """End each connection whose answer is unread for too long; and if all unread answers are too much, those with the most."""
        unread = []
        now = self._loop.time()
        for connection in self._open.all():
            if connection.unread and _is_sent(connection.socket):
                connection.unread = 0
            if connection.unread and now - connection.active > _UNREAD_SECONDS and not connection.busy:
                self._end(connection)
            elif connection.unread:
                unread.append(connection)
        size = sum(connection.unread for connection in unread)
        for connection in sorted(unread, key=lambda connection: -connection.unread):
            if size <= _UNREAD_BYTES:
                return
            size -= connection.unread
            self._end(connection)

    def _forget_closed(self) -> None:
        for connection in self._open.all():
            if connection.protocol is None or connection.protocol.transport is None:
                self._forget(connection)

    def _end_silent(self) -> None:
        for connection in self._silent.all():
            self._end(connection)

    def _end(self, connection: Connection) -> None:
        if connection in self._silent:
            self._loop.remove_reader(connection.socket)
            connection.socket.close()
        elif connection in self._handshakes:
            _shut_down(connection.socket)  # the handshake then fails, and its task closes the socket
        elif connection.protocol is not None and connection.protocol.transport is not None:
            connection.protocol.transport.abort()
        self._forget(connection)

    def _forget(self, connection: Connection) -> None:
        for shares in (self._silent, self._ready, self._handshakes, self._open):
            shares.discard(connection)
        if connection.protocol is not None:
            self._by_protocol.pop(connection.protocol, None)


def _first_byte(connection: socket.socket) -> bytes | None:
    """Return the first byte, which stays unread; None if there is none yet, no byte at the end."""
    try:
        return connection.recv(1, socket.MSG_PEEK)
    except (BlockingIOError, InterruptedError):
        return None
    except OSError:
        return b""


def _is_sent(connection: socket.socket) -> bool:
    """Return whether the client's kernel has all that was written."""
    try:
        waiting = fcntl.ioctl(connection.fileno(), termios.TIOCOUTQ, bytes(4))
    except (OSError, ValueError):  # ValueError: it is closed
        return True
    return int.from_bytes(waiting, sys.byteorder) == 0


def _shut_down(connection: socket.socket) -> None:
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:  # the client has gone
        return
