"""A node in a process and namespaces of its own, and the one who starts it and tells it what to do.

Both run the same code, so that what is asked is a function: it is sent by its name with its arguments, called with the
node, and its result comes back. How nodes are joined is `cluster`'s.
"""

import contextlib
import socket
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from simnode.hardware.hardware_model import SimulatedPf
from simnode.host_files import FlannelLease
from simnode.node import Node

_END_SECONDS = 20.0
_STDERR = 2  # a node has nothing to say on stdout, which may be a program's result

_P = ParamSpec("_P")
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class NodePlan:
    """What a node is to be; see `Node`."""

    plugins: Path
    pfs: tuple[SimulatedPf, ...]
    vfs: int
    lease: FlannelLease


class RemoteFailed(RuntimeError):
    """A function failed on a node, or the node ended; the message has the traceback from there."""


class RemoteNode:
    """A node that is being started; `wait` until it runs. `close` ends it and all that runs on it.

    Args:
        name: for messages.
        plan: what it is to be.
        uplinks: by rail, the end of a cable to plug into the node's fabric; the caller's to close.
    """

    def __init__(self, name: str, plan: NodePlan, uplinks: Iterable[socket.socket]) -> None:
        self.name = name
        ours, theirs = socket.socketpair()
        fds = [theirs.fileno(), *(end.fileno() for end in uplinks)]
        inside = [sys.executable, "-m", "simnode.remote", *map(str, fds)]
        command = [sys.executable, "-m", "simnode", "exec", "--", *inside]
        with theirs:
            self._process = subprocess.Popen(command, pass_fds=fds, stdin=subprocess.DEVNULL, stdout=_STDERR)
        self._connection: Connection[Any, Any] = Connection(ours.detach())
        self._connection.send(plan)

    @property
    def pid(self) -> int:
        """A process that is in the node's network namespace once it runs."""
        return self._process.pid

    def call(self, function: Callable[Concatenate[Node, _P], _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Call a module's function or a method of `Node` there; arguments and result must be picklable.

        Raises:
            RemoteFailed: it raised.
        """
        self.begin(function, *args, **kwargs)
        return cast(_T, self.wait())

    def begin(self, function: Callable[Concatenate[Node, _P], _T], *args: _P.args, **kwargs: _P.kwargs) -> None:
        """Have a function called there, without waiting for its result: `wait` must follow."""
        try:
            self._connection.send((function, args, kwargs))
        except OSError as error:
            raise self._ended() from error

    def close(self) -> None:
        """Take the node down.

        Raises:
            RemoteFailed: it did not go in peace.
        """
        self._connection.close()
        try:
            status = self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            status = self._process.wait()
        if status:
            raise RemoteFailed(f"{self.name} ended with status {status}")

    def wait(self) -> object:
        """Wait for the node to run, the first time; then for the result of what was begun.

        Raises:
            RemoteFailed: it did not start, or the function raised.
        """
        try:
            failed, result = self._connection.recv()
        except (EOFError, OSError) as error:
            raise self._ended() from error
        if failed:
            raise RemoteFailed(f"on {self.name}: {result}")
        return result

    def _ended(self) -> RemoteFailed:
        return RemoteFailed(f"{self.name} has ended (status {self._process.poll()}); its words are on stderr")


def main(fds: Iterable[int]) -> None:
    """Be the node that is planned in the first message of the connection, until its end; then uplinks by rail."""
    connection_fd, *uplinks = fds
    connection: Connection[Any, Any] = Connection(connection_fd)
    plan: NodePlan = connection.recv()
    with Node(plan.plugins, plan.pfs, plan.vfs, plan.lease) as node:
        for rail, fd in enumerate(uplinks):
            node.uplink(rail, socket.socket(fileno=fd))
        connection.send((False, None))
        with contextlib.suppress(EOFError):  # whoever started this node is done with it, or has ended
            while True:
                function, args, kwargs = connection.recv()
                connection.send(_called(function, node, args, kwargs))


def _called(
    function: Callable[..., object], node: Node, args: Iterable[Any], kwargs: dict[str, Any]
) -> tuple[bool, object]:
    try:
        return False, function(node, *args, **kwargs)
    except Exception:  # noqa: BLE001 - handed to the caller in the other process
        return True, traceback.format_exc()


if __name__ == "__main__":
    main(map(int, sys.argv[1:]))
