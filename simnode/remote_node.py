"""A node in a separate process with separate namespaces, and the client that starts it and calls functions on it.

Both processes run the same code. So a request is a function: the client sends its name and its arguments, the node's
process calls it with the node and sends the result back. `cluster` connects several simulated nodes; the tests of a
Kubernetes cluster have a node class of their own.
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
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, cast

from simnode.hardware.pf_properties import SimulatedPf
from simnode.node import Node
from simnode.preinstalled_files import FlannelLease

_STDERR = 2  # the caller's stdout may be the result of a program, so the node must not write there

_P = ParamSpec("_P")
_T = TypeVar("_T")
_N = TypeVar("_N")


@dataclass(frozen=True, slots=True)
class NodePlan:
    """The arguments of a `Node` that is to be started."""

    plugins: Path
    pfs: tuple[SimulatedPf, ...]
    vfs: int
    lease: FlannelLease


class RemoteFailed(RuntimeError):
    """A function failed on a node, or the node ended; the message has the traceback of the node's process."""


class RemoteNode(Generic[_N]):
    """A node that starts in another process; `wait` returns when it runs, `close` ends it and all its processes.

    Args:
        name: the node's name in messages.
        plan: the first message to the node's process.
        uplinks: by rail, the end of a cable to plug into the node's fabric; the caller closes it.
        module: the program of the node's process. Its arguments are the descriptors of the connection and of the uplinks.
        options: options of `simnode exec`.
        end_seconds: how long the end of the node may take.
    """

    def __init__(
        self,
        name: str,
        plan: object,
        uplinks: Iterable[socket.socket],
        module: str = "simnode.remote_node",
        options: Iterable[str] = (),
        end_seconds: float = 20.0,
    ) -> None:
        self.name, self._end_seconds = name, end_seconds
        client_end, node_end = socket.socketpair()
        fds = [node_end.fileno(), *(end.fileno() for end in uplinks)]
        inside = [sys.executable, "-m", module, *map(str, fds)]
        command = [sys.executable, "-m", "simnode", "exec", *options, "--", *inside]
        with node_end:
            self._process = subprocess.Popen(command, pass_fds=fds, stdin=subprocess.DEVNULL, stdout=_STDERR)
        self._connection: Connection[Any, Any] = Connection(client_end.detach())
        self._connection.send(plan)

    @property
    def pid(self) -> int:
        """The id of a process that is in the node's network namespace once the node runs."""
        return self._process.pid

    def call(self, function: Callable[Concatenate[_N, _P], _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Call a module's function or a method of the node's class in the node's process; arguments and result must be picklable.

        Raises:
            RemoteFailed: the function raised.
        """
        self.begin(function, *args, **kwargs)
        return cast(_T, self.wait())

    def begin(self, function: Callable[Concatenate[_N, _P], _T], *args: _P.args, **kwargs: _P.kwargs) -> None:
        """Call a function in the node's process and do not wait for its result; a call of `wait` must follow."""
        try:
            self._connection.send((function, args, kwargs))
        except OSError as error:
            raise self._ended() from error

    def close(self) -> None:
        """End the node.

        Raises:
            RemoteFailed: the node's process ended with another status than 0, or had to be killed.
        """
        self._connection.close()
        try:
            status = self._process.wait(self._end_seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            status = self._process.wait()
        if status:
            raise RemoteFailed(f"{self.name} ended with status {status}")

    def wait(self) -> object:
        """Wait until the node runs, at the first call; wait for the result of `begin`, at each later call.

        Raises:
            RemoteFailed: the node did not start, or the function raised.
        """
        try:
            failed, result = self._connection.recv()
        except (EOFError, OSError) as error:
            raise self._ended() from error
        if failed:
            raise RemoteFailed(f"on {self.name}: {result}")
        return result

    def _ended(self) -> RemoteFailed:
        return RemoteFailed(f"{self.name} has ended with status {self._process.poll()}: read its messages on stderr")


def main(fds: Iterable[int]) -> None:
    """Run a node and serve calls until the client closes the connection.

    The first descriptor is the connection, whose first message is the plan; the others are uplinks, by rail.
    """
    connection_fd, *uplinks = fds
    connection: Connection[Any, Any] = Connection(connection_fd)
    plan: NodePlan = connection.recv()
    with Node(plan.plugins, plan.pfs, plan.vfs, plan.lease) as node:
        for rail, fd in enumerate(uplinks):
            node.uplink(rail, socket.socket(fileno=fd))
        serve(connection, node)


def serve(connection: "Connection[Any, Any]", node: object) -> None:
    """Report that the node runs, and call what the client asks for, until the client closes the connection or has ended."""
    connection.send((False, None))
    with contextlib.suppress(EOFError):
        while True:
            function, args, kwargs = connection.recv()
            connection.send(_called(function, node, args, kwargs))


def _called(
    function: Callable[..., object], node: object, args: Iterable[Any], kwargs: dict[str, Any]
) -> tuple[bool, object]:
    try:
        return False, function(node, *args, **kwargs)
    except Exception:  # noqa: BLE001 - handed to the caller in the other process
        return True, traceback.format_exc()


if __name__ == "__main__":
    main(map(int, sys.argv[1:]))
