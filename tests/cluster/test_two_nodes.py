"""Pods on two nodes, each with its kubelet, containerd, flanneld and kube-proxy: both networks lead from one to the other."""

from collections.abc import Iterator

import pytest

from tests.cluster.node import ClusterNode
from tests.cluster.pods import pod

PING_BYTES = 1400


@pytest.fixture(scope="module")
def nodes(shared_node: ClusterNode) -> Iterator[list[str]]:
    """The names of the nodes, each with Railnet."""
    with shared_node.all_nodes():
        yield shared_node.nodes()


@pytest.fixture
def pods(node: ClusterNode, nodes: list[str]) -> list[str]:
    """The names of a pod for each node, with a VF of both rails each."""
    names = []
    for where in nodes:
        described = pod(f"on-{where}", 2)
        described["spec"]["nodeName"] = where
        node.create(described)
        names.append(described["metadata"]["name"])
    node.wait_until_ready(*names)
    return names


def test_pods_of_two_nodes_reach_each_other_on_eth0_and_on_each_rail(node: ClusterNode, pods: list[str]) -> None:
    addresses = {name: node.addresses(name) for name in pods}
    first, second, *_ = pods

    assert all(set(found) == {"eth0", "net1", "net2"} for found in addresses.values())
    for ifname in ("eth0", "net1", "net2"):
        assert node.pings(first, ifname, addresses[second][ifname]), ifname
        assert node.pings(second, ifname, addresses[first][ifname]), ifname


def test_packets_of_a_rail_cross_its_leaf_and_no_other(node: ClusterNode, pods: list[str]) -> None:
    first, second, *_ = pods
    address = node.addresses(second)["net2"]
    before = [leaf.counters.bytes for leaf in node.leaves]
    pinged = node.pings(first, "net2", address, PING_BYTES)
    carried = [leaf.counters.bytes - count for leaf, count in zip(node.leaves, before, strict=True)]

    assert pinged
    assert carried[0] < PING_BYTES  # a host solicits routers on each rail from time to time
    assert carried[1] > 2 * PING_BYTES


def test_no_two_pods_of_the_cluster_have_an_address_in_common(node: ClusterNode, pods: list[str]) -> None:
    addresses = [address for name in pods for address in node.addresses(name).values()]

    assert len(set(addresses)) == len(addresses) == 3 * len(pods)
