"""A listening TCP socket whose connections are accepted in small batches, whatever accept(2) answers.

asyncio's own server takes a whole backlog in one round of the event loop and makes objects for each connection, before any limit can apply.
Here the caller gets the bare socket and decides. The caller decides what a connection may cost, and which is closed for another.
"""

import asyncio
import logging
import socket
import struct
import sys
import time
from collections.abc import Callable
from typing import Protocol

_log = logging.getLogger(__name__)
_BATCH = 64  # connections in one round of the event loop: 1 to 3 ms
# After a full batch nothing is accepted for as long as this many batches took: a flood gets a third of the loop's time at most. Meanwhile
# connections wait in the kernel's backlog.
_PAUSES = 2.0
_REFUSED_SECONDS = (
    0.1  # until the next try after accept(2) has failed: the socket stays readable, so the loop would spin
)
_RESET_AT_CLOSE, _SEND_BEFORE_CLOSE = struct.pack("ii", 1, 0), struct.pack("ii", 0, 0)  # struct linger (socket(7))
_WAITING_OFFSET = (
    24  # include/uapi/linux/tcp.h, struct tcp_info: tcpi_unacked; of a listening socket it is the length of its queue
)


def listening(host: str | None, port: int, *, backlog: int, read_bytes: int | None = None) -> socket.socket:
    """Return a listening socket, which the caller owns; without `host`, on all addresses of IPv4 and, if there is IPv6, of IPv6.

    Args:
        host: an address.
        port: 0 for any free port.
        backlog: how many connections wait in the kernel; net.core.somaxconn limits it.
        read_bytes: how many bytes each connection may hold in the kernel until they are read; the kernel doubles it. None: its own choice.

    Raises:
        OSError: the port is taken, or the host is out of descriptors or memory.
    """
    dual = host is None and socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if dual or ":" in (host or "") else socket.AF_INET
    listener = socket.create_server((host or "", port), family=family, backlog=backlog, dualstack_ipv6=dual)
    # Connections inherit both. A connection that is closed is reset, so it leaves nothing in the kernel for a minute (TIME_WAIT).
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_AT_CLOSE)
    if read_bytes is not None:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, read_bytes)
    listener.setblocking(False)
    return listener


def waiting(listener: socket.socket) -> int:
    """Return how many connections wait in the kernel to be accepted."""
    information = listener.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _WAITING_OFFSET + 4)
    return int.from_bytes(information[_WAITING_OFFSET:], sys.byteorder)


def close_after_sending(connection: socket.socket) -> None:
    """Have the kernel send what was written before it ends a connection that is closed, instead of a reset."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _SEND_BEFORE_CLOSE)


class Accepted(Protocol):
    """The caller's part: it owns the connection, which does not block, and raises nothing."""

    def __call__(self, connection: socket.socket, address: str, /, *, crowded: bool) -> None:
        """Take a connection; `crowded` if more connections wait than one round accepts."""


class Acceptor:
    """Accepts connections of a listening socket until `close`."""

    def __init__(self, listener: socket.socket, accepted: Accepted, exhausted: Callable[[], None]) -> None:
        """Accept from now on; own the listening socket.

        Args:
            listener: a listening socket that does not block.
            accepted: is called with each connection and its client's address.
            exhausted: is called when accept(2) fails, mostly because descriptors or memory are exhausted; it may close connections.
        """
        self._listener, self._accepted, self._exhausted = listener, accepted, exhausted
        self._loop = asyncio.get_running_loop()
        self._later: asyncio.TimerHandle | None = None
        self._fails = False
        self.port: int = listener.getsockname()[1]
        self._resume()

    @property
    def open(self) -> bool:
        """Return whether it still accepts."""
        return self._listener.fileno() >= 0

    def close(self) -> None:
        """Accept no more, and close the listening socket."""
        if not self.open:
            return
        self._pause()
        self._listener.close()

    def _accept(self) -> None:
        began = time.perf_counter()
        crowded = waiting(self._listener) > _BATCH
        for _ in range(_BATCH):
            try:
                connection, address = self._listener.accept()
                connection.setblocking(False)
            except (BlockingIOError, InterruptedError):
                return
            except ConnectionAbortedError:  # the client has gone meanwhile
                continue
            except OSError as error:
                self._failed(error)
                return
            self._fails = False
            self._accepted(connection, address[0], crowded=crowded)
        self._resume_after(_PAUSES * (time.perf_counter() - began))

    def _failed(self, error: OSError) -> None:
        if not self._fails:
            _log.warning(
                "port %d takes no connection: %s; it tries again, and all else goes on", self.port, error.strerror
            )
        self._fails = True
        self._exhausted()
        self._resume_after(_REFUSED_SECONDS)

    def _resume_after(self, seconds: float) -> None:
        self._pause()
        self._later = self._loop.call_later(seconds, self._resume)

    def _pause(self) -> None:
        self._loop.remove_reader(self._listener)
        if self._later is not None:
            self._later.cancel()

    def _resume(self) -> None:
        self._loop.add_reader(self._listener, self._accept)
