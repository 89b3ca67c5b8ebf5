"""The disk with kubelet's state hangs: the daemon goes on, and each request that needs the file ends in time, in words."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from simnode.kubernetes.kubelet import PodIdentity
from simnode.node import RESOURCE, Node
from tests.node.primaries import left_over
from tests.node.test_hung_hardware import hung

CHECKPOINT = Path("/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint")
_HUNG_SECONDS = 8.0  # more than twice the time after which the supervisor ends a silent daemon


@pytest.fixture
def node() -> Iterator[Node]:
    with Node(Path(os.environ["RAILNET_CNI_PLUGINS"])) as started:
        started.install()
        started.daemon.supervised = True
        started.start_daemon()
        yield started
        assert left_over(started) == []


def test_checkpoint_that_does_not_answer_ends_no_daemon_and_its_requests_end_in_time(node: Node) -> None:
    """A FIFO in the file's place: its open never returns. kubelet answers, so that each pod starts all the same."""
    daemon, identities = node.daemon.daemon_pid(), [PodIdentity(name, "default", f"uid-{name}") for name in "abc"]
    for identity in identities:
        node.kubelet.allocate(identity, RESOURCE, 1)
    began = time.monotonic()
    with hung(CHECKPOINT):
        pods = [node.run_sandbox(identity) for identity in identities]
        while time.monotonic() - began < _HUNG_SECONDS:
            node.runtime.add(plain := node.runtime.create_sandbox("default", "plain", "uid-plain"))
            node.runtime.tear_down(plain)
            time.sleep(0.5)
    slowest = max(pod.add_ms for pod in pods)
    for pod in pods:
        node.remove_pod(pod)

    assert node.daemon.daemon_pid() == daemon
    assert slowest < 10_000
    assert "not read within 2 s: does its disk answer?" in node.daemon.log()
