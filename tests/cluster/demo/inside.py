"""The part of the demo that runs in the namespaces: it starts the cluster, plays, and stays if a person wants that."""

import os
import socket
import sys
import threading
from pathlib import Path
from typing import NoReturn

from tests.cluster import busybox, pytorch
from tests.cluster.demo import person
from tests.cluster.demo.cluster import Demo
from tests.cluster.demo.forwarding import Forwarding
from tests.cluster.demo.steps import Steps
from tests.cluster.ground import NODE_ADDRESS
from tests.cluster.node import ClusterNode
from tests.cluster.railnet_on_node import IMAGE

PLAYED = "played"
"""The file in the demo's folder that says that all steps have succeeded."""

_API_PORT = 443
_STAYS = f"""
  The cluster stays until Ctrl-C. In another terminal:

    {{line}}
    kubectl get pods --all-namespaces --output=wide

  Pods can have the images {busybox.NAME}, {pytorch.NAME} and {IMAGE}. No registry can be reached.
"""


def run(folder: Path, listener: socket.socket | None) -> NoReturn:
    """Play, and end this process: with 0 if all steps have succeeded, else with 1.

    Nothing is ended in its turn: the namespaces end with this process, and with them all programs, links and mounts.

    Args:
        folder: for what a person may look at.
        listener: a socket of the machine for a person's requests to the API server, for which the cluster stays; None if it ends at once.
    """
    threading.Thread(target=_end_with_stdin, daemon=True).start()
    steps = Steps(sys.stdout)
    cluster = ClusterNode(tell=steps.begin)
    demo = Demo(cluster, folder, steps)
    try:
        with cluster, cluster.joined_rails():
            os._exit(_play(demo, listener))
    except Exception as error:  # noqa: BLE001 - a program of the cluster did not start
        _fail(demo, error)
    os._exit(1)


def _play(demo: Demo, listener: socket.socket | None) -> int:
    try:
        demo.play()
        if listener is not None:
            _stay(demo.folder, listener)
    except Exception as error:  # noqa: BLE001 - a step may fail in any way, and the cluster's logs are there only now
        _fail(demo, error)
        return 1
    return 0


def _stay(folder: Path, listener: socket.socket) -> None:
    Forwarding(listener, NODE_ADDRESS, _API_PORT).start()
    person.write(folder, listener.getsockname()[1])
    (folder / PLAYED).touch()
    sys.stdout.write(_STAYS.format(line=person.line(folder)))
    sys.stdout.flush()
    threading.Event().wait()


def _end_with_stdin() -> NoReturn:
    """End at the end of the standard input: the part on the machine was killed, and could send no signal."""
    sys.stdin.buffer.read()
    os._exit(1)


def _fail(demo: Demo, error: Exception) -> None:
    demo.save_logs()
    demo.steps.fail(error)
