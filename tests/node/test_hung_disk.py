"""The disk with kubelet's state hangs: the daemon goes on, and each request that needs the file ends in time, in words."""

import time
from pathlib import Path

from simnode.kubernetes.kubelet import PodIdentity
from simnode.node import RESOURCE, Node
from tests.node.test_hung_hardware import hung

CHECKPOINT = Path("/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint")
_HUNG_SECONDS = 8.0  # more than twice the time after which the supervisor ends a silent daemon


def test_checkpoint_that_does_not_answer_ends_no_daemon_and_its_requests_end_in_time(supervised_node: Node) -> None:
    """A FIFO in the file's place: its open never returns. kubelet answers, so that each pod starts all the same."""
    daemon, identities = (
        supervised_node.daemon.daemon_pid(),
        [PodIdentity(name, "default", f"uid-{name}") for name in "abc"],
    )
    for identity in identities:
        supervised_node.kubelet.allocate(identity, RESOURCE, 1)
    began = time.monotonic()
    with hung(CHECKPOINT):
        pods = [supervised_node.run_sandbox(identity) for identity in identities]
        while time.monotonic() - began < _HUNG_SECONDS:
            supervised_node.runtime.add(
                plain := supervised_node.runtime.create_sandbox("default", "plain", "uid-plain")
            )
            supervised_node.runtime.tear_down(plain)
            time.sleep(0.5)
    slowest = max(pod.add_ms for pod in pods)
    for pod in pods:
        supervised_node.remove_pod(pod)

    assert supervised_node.daemon.daemon_pid() == daemon
    assert slowest < 10_000
    assert "not read within 2 s: does its disk answer?" in supervised_node.daemon.log()
