"""Ports on which a test lets a program listen later. The kernel gives none of them to another socket meanwhile."""

import itertools
import os
import socket
from contextlib import suppress

_FIRST, _OF_ONE_PROCESS = 20000, 1000  # below net.ipv4.ip_local_port_range, whose default begins at 32768
_PART = os.environ.get("RAILNET_MODULES_PART", "0/1").partition("/")[0]
_WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", f"gw{_PART}").removeprefix("gw")) % 12
_PORTS = itertools.cycle(range(_FIRST + _WORKER * _OF_ONE_PROCESS, _FIRST + (_WORKER + 1) * _OF_ONE_PROCESS))


def free_port() -> int:
    """Return a port that no process listens on, each time another one, and in each process that scripts/test runs other ones."""
    while True:
        port = next(_PORTS)
        with suppress(OSError), socket.create_server(("", port)):
            return port
