"""Provide a simulated node with the real executable, the real daemon and real CNI plugins. The tests of this folder run inside it."""

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from simnode.node import RESOURCE, Node
from tests.node.primaries import OURS, left_over, remove_stubs


@pytest.fixture(scope="module")
def shared_node() -> Iterator[Node]:
    with Node(Path(os.environ["RAILNET_CNI_PLUGINS"])) as node:
        node.install()
        node.start_daemon()
        OURS.parent.mkdir()
        for name in ("00-railnet.conflist", "10-flannel.conflist"):
            shutil.copy(Path("/etc/cni/net.d", name), OURS.with_name(name))
        node.runtime.configurations = OURS.parent
        yield node


@pytest.fixture
def node(shared_node: Node) -> Iterator[Node]:
    """Provide a node with a running daemon. When a test ends, nothing of its pods may be left on the node."""
    conflist = OURS.read_bytes()
    yield shared_node
    OURS.write_bytes(conflist)
    remove_stubs()
    if shared_node.daemon.process is None:
        shared_node.start_daemon()
    shared_node.kubelet.wait_for_devices(RESOURCE, shared_node.vfs, 60)
    assert left_over(shared_node) == []


@pytest.fixture
def supervised_node() -> Iterator[Node]:
    """Provide a node of its own, with a daemon under its supervisor, as in a container. When a test ends, nothing of its pods may be left on the node."""
    with Node(Path(os.environ["RAILNET_CNI_PLUGINS"])) as node:
        node.install()
        node.daemon.supervised = True
        node.start_daemon()
        yield node
        assert left_over(node) == []


@pytest.fixture(params=["running", "absent", "stopped"])
def daemon(request: pytest.FixtureRequest, node: Node) -> Iterator[str]:
    """Put the daemon into a state during a test: it serves, it is absent, or SIGSTOP holds it."""
    match request.param:
        case "absent":
            node.stop_daemon()
        case "stopped":
            node.daemon.process.send_signal(signal.SIGSTOP)
    yield request.param
    match request.param:
        case "absent":
            node.start_daemon()
        case "stopped":
            node.daemon.process.send_signal(signal.SIGCONT)
