"""A node that offers its VFs by the device plugin changes to DRA under running pods, and back."""

from tests.cluster.claims import slices, untainted
from tests.cluster.dra_node import ALL, SECONDS, forget_dra, offer_by_device_plugin, offer_by_dra, vfs
from tests.cluster.ground import NODE
from tests.cluster.node import ClusterNode
from tests.cluster.process import wait_until


def test_node_changes_its_way_under_running_pods_and_back(node: ClusterNode) -> None:
    old = node.run("old-way", 2)
    before = vfs(node, old)
    offer_left = ALL - len(before)
    offer_by_dra(node)
    wait_until(lambda: untainted(NODE) == offer_left, SECONDS, "the free VFs to be in slices")
    new = node.run("new-way", offer_left)
    assert vfs(node, old) == before
    assert not before & vfs(node, new)

    offer_by_device_plugin(node)
    wait_until(lambda: not slices(NODE), SECONDS, "the slices to go")
    assert set(node.addresses(new)) == {"eth0", *(f"net{number}" for number in range(1, offer_left + 1))}
    node.delete(old)
    node.wait_for_vfs(len(before))
    # The scheduler subtracts what running pods ask for by the plain line, also of those that have it by a claim.
    again = node.bring("again", len(before))
    node.wait_for_event(again, "Insufficient rdma/ib_vf")
    node.delete(new)
    node.wait_until_ready(again)
    assert set(node.addresses(again)) == {"eth0", "net1", "net2"}
    assert node.forget_pods() == []
    forget_dra(node)
    node.wait_for_vfs(ALL)
