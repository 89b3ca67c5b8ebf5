"""What dies and comes back: sandboxes, kubelet, the container runtime. Pods keep their rails, or get them again."""

import os
import time
from pathlib import Path

from tests.cluster.node import ClusterNode
from tests.cluster.process import wait_until

_SECONDS = 150.0  # the daemon looks for what dead pods left at its start, and every minute
_LONG_AGO = 100.0  # seconds; an ADD takes 90 at most


def vfs(node: ClusterNode, name: str) -> list[str]:
    """Give the VFs of a pod that has one sandbox."""
    (record,) = node.records(name)
    return [one["vf"] for one in record["attachments"]]


def sandboxes(node: ClusterNode, name: str) -> list[str]:
    """Give the sandboxes of a pod that have rails."""
    return [record["id"] for record in node.records(name) if record["stage"] == "attached"]


def test_new_sandbox_of_a_pod_has_the_same_vfs(node: ClusterNode) -> None:
    one, other = node.run("one", 2), node.run("other", 2)
    first = vfs(node, one)
    killed = node.containerd.kill_sandbox(one)

    node.wait_until_restarted(one)
    assert sandboxes(node, one) != [killed]
    assert vfs(node, one) == first
    assert node.pings(other, "net1", node.addresses(one)["net1"])


def test_pods_keep_their_rails_over_a_kubelet_restart(node: ClusterNode) -> None:
    one, other = node.run("one", 2), node.run("other", 2)
    before = [sandboxes(node, name) for name in (one, other)]
    node.restart_kubelet()
    late = node.run("late", 2)

    assert [sandboxes(node, name) for name in (one, other)] == before
    assert len({vf for name in (one, other, late) for vf in vfs(node, name)}) == 6
    assert node.pings(one, "net1", node.addresses(late)["net1"])


def test_pods_keep_their_rails_over_a_containerd_restart(node: ClusterNode) -> None:
    one, other = node.run("one", 2), node.run("other", 2)
    before = [node.containerd.sandbox(name) for name in (one, other)]
    node.containerd.restart()
    wait_until(
        lambda: node.kubectl.answers("exec", one, "--", "sleep", "0"),
        _SECONDS,
        "kubelet to have found the runtime again",
    )
    late = node.run("late", 2)

    assert [node.containerd.sandbox(name) for name in (one, other)] == before
    assert node.pings(one, "net1", node.addresses(other)["net1"])
    assert node.pings(one, "net2", node.addresses(late)["net2"])


def test_pods_keep_their_rails_over_a_daemon_restart_and_leftovers_of_dead_pods_go(node: ClusterNode) -> None:
    one = node.run("one", 2)
    before = sandboxes(node, one)
    address = Path("/var/lib/cni/networks/cbr0/10.244.3.250")
    address.write_text("0ddba11\r\neth0")
    os.utime(address, (time.time() - _LONG_AGO,) * 2)
    node.railnet.stop()
    node.railnet.start()
    other = node.run("other", 2)

    assert sandboxes(node, one) == before
    assert not {*vfs(node, one)} & {*vfs(node, other)}
    assert node.pings(one, "net1", node.addresses(other)["net1"])
    wait_until(
        lambda: not address.exists(), _SECONDS, "the dead pod's address to come back: the runtime does not list it"
    )
