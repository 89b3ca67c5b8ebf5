"""The daemon is dead: pods without a rail do not notice; pods with one wait, or fail with an event that says why."""

from pathlib import Path

from tests.cluster import dead_daemon
from tests.cluster.node import PFS, VFS, ClusterNode
from tests.cluster.process import wait_until

_SECONDS = 240.0  # as a pod may take on a busy node (tests/cluster/node.py)


def test_pods_without_a_rail_start_without_a_warning(node: ClusterNode) -> None:
    node.forget_events()
    dead_daemon.kill(node)
    names = dead_daemon.run_plain_pods(node, "plain")

    assert node.warnings(names) == []
    assert node.is_ready()


def test_rail_pod_that_is_not_bound_yet_waits_for_vfs(node: ClusterNode) -> None:
    late = dead_daemon.pod_not_bound(node)

    assert "net1" in node.addresses(late.pod)


def test_rail_pod_that_is_bound_as_the_daemon_dies_fails_and_its_job_makes_another(node: ClusterNode) -> None:
    assert dead_daemon.pod_just_bound(node).failed["reason"] == "UnexpectedAdmissionError"


def test_sandbox_made_again_waits_for_a_daemon_that_comes_in_time(node: ClusterNode) -> None:
    train = dead_daemon.sandbox_in_time(node)

    assert not any("did not answer" in event["message"] for event in node.kubectl.events(train.pod))


def test_sandbox_made_again_is_retried_when_the_daemon_comes_late(node: ClusterNode) -> None:
    train = dead_daemon.sandbox_late(node)

    assert "net1" in node.addresses(train.pod)


def test_pod_deleted_without_a_daemon_gives_its_vfs_back_to_the_next(node: ClusterNode) -> None:
    train = node.run("train", 1)
    node.railnet.kill()
    node.delete(train)
    wait_until(lambda: not list(Path("/run/netns").glob("*")), _SECONDS, "the sandbox to go")
    node.railnet.start()

    node.forget_pods()
    wide = node.run("wide", VFS * len(PFS))
    assert len(node.addresses(wide)) == 1 + VFS * len(PFS)
