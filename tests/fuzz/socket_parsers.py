"""Parsers of both ends of Railnet's socket. The input arrives by a real socket, so frames may be cut anywhere."""

import asyncio
import socket
import threading
from functools import cache
from pathlib import Path

from cni.connection import ExecutableConnection, ExecutableGone
from cni.delegate_slots import DelegateSlots
from cni.flannel_shortcut import FlannelDelegates
from cni.host import chain, daemon, frames
from cni.host.environment import Environment
from cni.host.errors import CniError
from cni.host.frames import FrameError
from cni.host.lock import Lock
from railnet.nri.created_container import CreatedContainer, ResourceLimit
from railnet.nri.messages import BadMessage
from railnet.nri.plugin import NriPlugin, RuntimeRefused
from tests.cni.fake_executable import CONF, ENVIRON
from tests.fuzz.parser import Parser

_MOST_BYTES = 20_000  # the answers to so many bytes still fit into a socket's buffer, from which no peer reads here


class _Connected(daemon._DaemonConnection):
    """The executable's end of a connection. The daemon's end has already sent all its bytes."""

    input = b""

    def connect(self) -> None:
        """Connect to a peer that has sent the input."""
        self._socket.close()
        ours, self._peer = socket.socketpair()
        self._socket = ours  # type: ignore[assignment]
        self._peer.sendall(self.input[:_MOST_BYTES])
        self._peer.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Close both ends."""
        super().close()
        self._peer.close()


def from_daemon(data: bytes) -> None:
    """Judge the bytes that an executable receives. It finds no plugin, so it executes none."""
    _Connected.input = data
    real, daemon._DaemonConnection = daemon._DaemonConnection, _Connected  # type: ignore[misc]
    grace, daemon._GRACE_SECONDS = daemon._GRACE_SECONDS, 0.0  # so that a HELLO may leave no time at all
    try:
        status, stdout = daemon.ask(Environment({**ENVIRON, b"CNI_PATH": b":"}), CONF, -1, Lock(""))
    finally:
        daemon._DaemonConnection, daemon._GRACE_SECONDS = real, grace  # type: ignore[misc]
    assert 0 <= status < 256 and isinstance(stdout, bytes)


_PRIMARY = chain.parse(
    b'{"name": "n", "cniVersion": "1.0.0", "plugins": [{"type": "bridge"}, {"type": "tuning"}]}', "/p"
)


@cache
def _loop(_: int) -> asyncio.AbstractEventLoop:
    return asyncio.new_event_loop()


async def _serve(data: bytes) -> None:
    ours, peer = socket.socketpair()
    ours.setblocking(False)
    with peer:
        peer.sendall(data[:_MOST_BYTES])
        peer.shutdown(socket.SHUT_WR)
        connection = ExecutableConnection(ours, 5.0, DelegateSlots(), FlannelDelegates(Path("/nonexistent")))
        try:
            received = await connection.request()
            if received is None:  # a QUERY
                return
            environ, stdin = received
            assert frames.blobs(frames.environ_blob(environ), stdin)
            for _ in range(len(data) % 4):  # so that the daemon sees the end of the input now or later
                await asyncio.sleep(0)
            await connection.handshake(30.0)
            await connection.done(0, await connection.drive(chain.add(_PRIMARY, {})))
        finally:
            connection.close()


def from_executable(data: bytes) -> None:
    """Judge the bytes that the daemon receives."""
    _loop(threading.get_ident()).run_until_complete(_serve(data))


async def _created(container: CreatedContainer) -> ResourceLimit:
    assert all(isinstance(part, str) for part in (container.pod, container.pod_uid, *container.limits))
    assert all(isinstance(major, int) and isinstance(minor, int) for major, minor in container.devices)
    return ResourceLimit("RLIMIT_MEMLOCK", 1 << 30)


async def _ask(data: bytes) -> None:
    ours, theirs = socket.socketpair()
    theirs.sendall(data[:_MOST_BYTES])
    theirs.shutdown(socket.SHUT_WR)
    reader, writer = await asyncio.open_connection(sock=ours)
    try:
        await NriPlugin(reader, writer, _created, lambda: None).serve()
    finally:
        writer.transport.abort()
        theirs.close()


def container_runtime(data: bytes) -> None:
    """Judge the bytes that a plugin of NRI receives from the container runtime."""
    _loop(threading.get_ident()).run_until_complete(_ask(data))


_DAEMON_FUNCTIONS = (
    "_DaemonConnection.hello",
    "_DaemonConnection.serve",
    "_DaemonConnection._receive",
    "_DaemonConnection._receive_some",
    "_DaemonConnection._left",
)
_CONNECTION_FUNCTIONS = tuple(f"ExecutableConnection.{name}" for name in ("request", "_output", "_receive", "_end"))
PARSERS = (
    Parser("from-daemon", from_daemon, (daemon.NoDaemon, CniError), {"cni.host.daemon": _DAEMON_FUNCTIONS}),
    Parser(
        "from-executable",
        from_executable,
        (FrameError, ExecutableGone, CniError),
        {"cni.connection": _CONNECTION_FUNCTIONS},
    ),
    Parser(
        "nri",
        container_runtime,
        (BadMessage, RuntimeRefused),
        {
            "railnet.nri.messages": (),
            "railnet.nri.plugin": (
                "NriPlugin._read",
                "NriPlugin._frame",
                "NriPlugin._answer",
                "NriPlugin._body",
                "_created",
                "_check_registration",
            ),
        },
    ),
)
