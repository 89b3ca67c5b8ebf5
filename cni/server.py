"""The socket to which executables connect: accept, check the peer's user, shake hands, and serve a request or a QUERY.

`cni.request_handler` serves the request.
"""

import asyncio
import logging
import os
import socket
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

from cni.connection import ExecutableConnection, ExecutableGone
from cni.delegate_slots import DelegateSlots
from cni.flannel_shortcut import FlannelDelegates
from cni.host.errors import TRY_AGAIN, CniError
from cni.host.frames import FrameError
from cni.request_cancellation import TimeLimits
from cni.request_handler import RequestHandler
from railnet.kernel.files import NO_ROOM, make_way

_log = logging.getLogger(__name__)
_BACKLOG = 512
_PAUSE_SECONDS = 0.1
_ROOM_SECONDS = 1.0  # between two tries to make the socket in a full /run


class Server:
    """Serves ADD, CHECK, DEL, GC and QUERY on a socket of mode 0600, for root alone. Each connection has a task."""

    def __init__(
        self,
        handler: RequestHandler,
        limits: TimeLimits,
        slots: DelegateSlots,
        flannel: FlannelDelegates,
        report: Callable[[], Awaitable[bytes]],
    ) -> None:
        """`slots` bounds the delegates that run at the same time. `report` returns the answer to a QUERY."""
        self._handler = handler
        self._limits = limits
        self._slots = slots
        self._flannel = flannel
        self._report = report
        self._connections: set[asyncio.Task[None]] = set()
        self._spare: int | None = None

    async def serve(self, path: Path, ready: Callable[[], Awaitable[None]]) -> None:
        """Listen until cancelled, then let running requests finish. `ready` is awaited when executables can connect."""
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as listening:
                await _listen_when_there_is_room(listening, path)
                await ready()
                await self._accept(listening)
        finally:
            _unlink(path)
            self._close_spare()
            if self._connections:
                await asyncio.wait(self._connections)

    async def _accept(self, listening: socket.socket) -> None:
        """Accept until cancelled. A callback accepts: a task that waited for each connection would cost two rounds of the loop."""
        loop = asyncio.get_running_loop()
        self._spare = _spare_descriptor()
        while True:
            refused: asyncio.Future[OSError] = loop.create_future()
            loop.add_reader(listening.fileno(), self._accept_one, listening, refused)
            try:
                error = await refused
            finally:
                loop.remove_reader(listening.fileno())
            # EMFILE, ENOMEM: requests that end free what is needed.
            _log.error("no connection can be accepted: %s", error)
            await self._refuse_one(listening)

    def _accept_one(self, listening: socket.socket, refused: "asyncio.Future[OSError]") -> None:
        """Accept a connection, and serve it in a task. If the kernel refuses, `refused` says why."""
        try:
            accepted, _ = listening.accept()
        except BlockingIOError:  # its executable has ended already
            return
        except OSError as error:
            if not refused.done():
                refused.set_result(error)
            return
        accepted.setblocking(False)
        if _peer_uid(accepted) != 0:  # whatever the socket's mode has become
            _log.warning("a connection of user %d is closed: only root may send requests", _peer_uid(accepted))
            accepted.close()
            return
        connection = ExecutableConnection(accepted, self._limits.delegate, self._slots, self._flannel)
        task = asyncio.create_task(self._serve_connection(connection))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    async def _refuse_one(self, listening: socket.socket) -> None:
        """Close a connection for which no descriptor is left, by means of the spare one: its executable need not wait for HELLO."""
        self._close_spare()
        refused = None
        with suppress(OSError):  # BlockingIOError: none waits
            refused, _ = listening.accept()
        if refused is None:
            await asyncio.sleep(_PAUSE_SECONDS)
        else:
            refused.close()
        self._spare = _spare_descriptor()

    def _close_spare(self) -> None:
        if self._spare is not None:
            os.close(self._spare)
            self._spare = None

    async def _serve_connection(self, connection: ExecutableConnection) -> None:
        try:
            received = await connection.request()
            if received is None:
                await self._answer_query(connection)
                return
            # An ADD that is interrupted at its deadline is undone after it, by delegates with a time limit of their own.
            await connection.handshake(sum(self._limits))
            await self._handler.serve(*received, connection)
        except FrameError as error:
            _log.warning("refused: %s", error)
            with suppress(ExecutableGone):
                await connection.done(
                    1, CniError(TRY_AGAIN, f"Railnet's daemon cannot read the request: {error}").stdout()
                )
        except (ExecutableGone, OSError) as error:
            # Before GO nothing has happened; after it, the request undid what it had done. The runtime has no answer.
            _log.warning("a request ended early: %r", error)
        finally:
            connection.close()

    async def _answer_query(self, connection: ExecutableConnection) -> None:
        try:
            await connection.answer(await self._report())
        except ExecutableGone:
            pass  # the client does not wait for the answer any more
        except Exception as error:  # noqa: BLE001 - the client sees the connection end, and the reason stands in the log
            _log.error("a query cannot be answered: %r", error)


def _peer_uid(connection: socket.socket) -> int:
    """Return the user of a peer: struct ucred is pid, uid, gid, 32 bits each (include/linux/socket.h)."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    return int.from_bytes(credentials[4:8], sys.byteorder)


def _spare_descriptor() -> int | None:
    try:
        return os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None


async def _listen_when_there_is_room(listening: socket.socket, path: Path) -> None:
    """Listen as soon as the folder has an inode for the socket. Until then executables serve pods without a rail alone."""
    while True:
        try:
            _listen(listening, path)
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            if _unlinked(
                path
            ):  # of a daemon that was killed, so it serves no request; its inode is enough for this one
                continue
            _log.error(
                "%s cannot be made (%s): free space or inodes there (`df -i /run/railnet`)", path, error.strerror
            )
            await asyncio.sleep(_ROOM_SECONDS)
        else:
            return


def _listen(listening: socket.socket, path: Path) -> None:
    """Bind to a temporary name, listen, then rename: a socket that a client finds is served.

    All daemons use the same temporary name, since only one serves at a time: the next one removes what a daemon that
    ended in between has left.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}")
    make_way(temporary)
    listening.bind(str(temporary))
    temporary.chmod(0o600)
    listening.listen(_BACKLOG)
    try:
        temporary.rename(path)
    except IsADirectoryError:
        make_way(path)
        temporary.rename(path)


def _unlinked(path: Path) -> bool:
    """Remove a file; return whether there was one."""
    existed = path.exists()
    _unlink(path)
    return existed


def _unlink(path: Path) -> None:
    with suppress(OSError):  # what is at the path is not this server's, and the next one says so
        path.unlink(missing_ok=True)
