"""A cluster of two nodes: their connections, their separation, and a failing function on one node."""

import os
from pathlib import Path

import pytest

from simnode.cluster import Cluster
from simnode.node import Node
from simnode.remote_node import RemoteFailed
from tests.simnode.two_machines import MACHINES


@pytest.fixture(scope="module")
def cluster():
    with Cluster(Path(os.environ["RAILNET_CNI_PLUGINS"]), MACHINES) as cluster:
        yield cluster


# A function that runs on a node must be in a module that the node's process can import by name.
def address_of_pod(node, name):
    pod = node.run_pod(name)
    return pod, pod.result.decode().split('"address": "')[1].split("/")[0]


def attach_by_hand(node, rail, host):
    """Move a PF's netdev into a pod, with the address 10.56.<rail>.<host>."""
    pod = node.run_pod(f"rail-{rail}")
    pf = sorted(Path("/sys/bus/pci/devices").iterdir())[rail]
    (netdev,) = (pf / "net").iterdir()
    for command in (
        f"link set {netdev.name} netns {pod.netns.name} name net1",
        f"-n {pod.netns.name} address add 10.56.{rail}.{host}/16 dev net1",
        f"-n {pod.netns.name} link set net1 up",
    ):
        assert os.spawnlp(os.P_WAIT, "ip", "ip", *command.split()) == 0
    return pod


def detach_by_hand(node, pod):
    node.remove_pod(pod)
    node.hca.settle()


def own_files(node):
    return (node.kubelet.checkpoint_path.exists(), os.getpid(), Path("/run/flannel/subnet.env").read_text())


def fail(node):
    raise LookupError("planted")


def test_pods_of_two_nodes_reach_each_other_over_eth0(cluster):
    (one, first), (other, second) = cluster.everywhere(address_of_pod, "one")
    reached = (
        cluster.nodes[0].call(Node.ping, one, second, "eth0"),
        cluster.nodes[1].call(Node.ping, other, first, "eth0"),
    )
    for node, pod in zip(cluster.nodes, (one, other), strict=True):
        node.call(Node.remove_pod, pod)

    assert first.startswith("10.244.3.")
    assert second.startswith("10.244.4.")
    assert reached == (True, True)


@pytest.mark.parametrize("rail", [0, 1])
def test_rail_carries_packets_between_nodes_and_the_other_rail_carries_none(cluster, rail):
    one, other = (node.call(attach_by_hand, rail, host) for host, node in enumerate(cluster.nodes, 1))
    before = [fabric.counters.bytes for fabric in cluster.fabrics]
    reached = cluster.nodes[0].call(Node.ping, one, f"10.56.{rail}.2", "net1")
    carried = [fabric.counters.bytes - old for fabric, old in zip(cluster.fabrics, before, strict=True)]
    for node, pod in zip(cluster.nodes, (one, other), strict=True):
        node.call(detach_by_hand, pod)

    assert reached
    assert carried[rail] == 2 * 84
    assert carried[1 - rail] == 0


def test_netdev_of_one_rail_does_not_reach_a_netdev_of_the_other_rail(cluster):
    one = cluster.nodes[0].call(attach_by_hand, 0, 1)
    other = cluster.nodes[1].call(attach_by_hand, 1, 2)
    reached = cluster.nodes[0].call(Node.ping, one, "10.56.1.2", "net1")
    for node, pod in zip(cluster.nodes, (one, other), strict=True):
        node.call(detach_by_hand, pod)

    assert not reached


def test_each_node_has_separate_processes_and_files(cluster):
    (_, pid, first), (_, other_pid, second) = cluster.everywhere(own_files)

    assert "FLANNEL_SUBNET=10.244.3.1/24" in first
    assert "FLANNEL_SUBNET=10.244.4.1/24" in second
    assert not Path("/run/flannel").exists()
    assert pid == other_pid == 2


def test_call_raises_the_traceback_of_a_failing_function_and_the_node_goes_on(cluster):
    with pytest.raises(RemoteFailed, match=r"(?s)on node-b: Traceback.*LookupError: planted"):
        cluster.nodes[1].call(fail)

    assert cluster.nodes[1].call(own_files)
