"""The outcomes that CNCF's AI conformance asks of networks (kubernetes-sigs/wg-ai-conformance, KAR-0010), each as the requirement words it."""

from collections.abc import Iterator

import pytest

from tests.cluster.claims import devices, pod_with_claim, request, template
from tests.cluster.dra_node import ALL, WAY
from tests.cluster.ground import NODE
from tests.cluster.node import ClusterNode
from tests.cluster.pods import pod


@pytest.fixture
def two_nodes(dra: ClusterNode) -> Iterator[ClusterNode]:
    """Pods go to all nodes; the first offers its VFs by DRA, the others by the device plugin."""
    dra.kubectl.run("label", "node", *dra.others, f"{WAY}=old")
    try:
        with dra.all_nodes():
            yield dra
            assert dra.forget_pods() == []
    finally:
        dra.kubectl.run("label", "node", *dra.others, f"{WAY}-")


def test_kar_0010_pods_have_interfaces_beside_the_pod_network(dra: ClusterNode) -> None:
    name = dra.run("several", 2)

    assert set(dra.addresses(name)) == {"eth0", "net1", "net2"}


def test_kar_0010_characteristics_of_interfaces_are_queryable(dra: ClusterNode) -> None:
    """The requirement names the interface's type, bandwidth and RDMA."""
    known = [device["attributes"] for device in devices(NODE)]

    assert len(known) == ALL
    assert [attributes["linkType"]["string"] for attributes in known] == ["infiniband"] * ALL
    assert [attributes["rdma"]["bool"] for attributes in known] == [True] * ALL
    assert all(float(attributes["rate"]["string"]) > 0 for attributes in known)


def test_kar_0010_pods_are_scheduled_where_their_interface_is(two_nodes: ClusterNode) -> None:
    """The claim names a rail, which the ResourceSlices of the first node alone have; the other nodes are as free."""
    two_nodes.kubectl.apply(
        template("rail", [request("vf", selector='device.attributes["rdma.railnet.io"].rail == 1')])
    )
    names = [f"on-rail-{number}" for number in range(3)]
    two_nodes.create(*(pod_with_claim(name, of_template="rail") for name in names))
    two_nodes.wait_until_ready(*names)

    found = {one["metadata"]["name"]: one["spec"]["nodeName"] for one in two_nodes.kubectl.get("pods")}
    assert found == dict.fromkeys(names, NODE)


def test_kar_0010_pods_exchange_data_over_the_interface(two_nodes: ClusterNode) -> None:
    names = []
    for where in two_nodes.nodes():
        described = pod(f"on-{where}", 1)
        described["spec"]["nodeSelector"] = {"kubernetes.io/hostname": where}
        names.append(f"on-{where}")
        two_nodes.create(described)
    two_nodes.wait_until_ready(*names)
    first, second, *_ = names

    for one, other in ((first, second), (second, first)):
        assert two_nodes.pings(one, "net1", two_nodes.addresses(other)["net1"])
