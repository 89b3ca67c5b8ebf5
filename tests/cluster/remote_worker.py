"""A further node of the cluster: a `Worker` in a process with namespaces of its own, which the first node's process calls."""

import socket
import sys
from collections.abc import Iterable, Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

from simnode.hardware.fabric import Uplink
from simnode.remote_node import RemoteNode, serve
from tests.cluster import ground
from tests.cluster.worker import Worker

_LINK = "eth0"
_END_SECONDS = 600.0  # kube-proxy and the runtime clean up, and each has a limit of its own


class WorkerPlan(NamedTuple):
    """What the process needs to know at its start.

    Attributes:
        node: the node's name.
        cards: how many cards it has.
        files: kubeconfigs and certificates, by path: the process has a /run of its own.
    """

    node: str
    cards: int
    files: Mapping[Path, bytes]


def start(plan: WorkerPlan, uplinks: Iterable[socket.socket]) -> RemoteNode[Worker]:
    """Start the process, and join it to the first node's network; its programs are still to be started.

    Args:
        plan: its first message.
        uplinks: by rail, the end of a cable; the caller closes it.
    """
    node: RemoteNode[Worker] = RemoteNode(
        plan.node, plan, uplinks, "tests.cluster.remote_worker", ["--cgroups"], _END_SECONDS
    )
    node.wait()
    ground.join(plan.node, node.pid, _LINK)
    return node


def main(connection_fd: int, *uplinks: int) -> None:
    """Serve calls until the first node's process closes the connection."""
    connection: Connection[Any, Any] = Connection(connection_fd)
    plan: WorkerPlan = connection.recv()
    for path, content in plan.files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    worker = Worker(plan.node, _LINK, plan.cards, [Uplink(socket.socket(fileno=fd)) for fd in uplinks])
    try:
        serve(connection, worker)
    finally:
        worker.close()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
