"""Gangs on nodes that offer their VFs by DRA: the planner counts the devices of slices, what pods have of them, and what claims ask for."""

from typing import Any

from railnet.kubelet.dra_driver_name import DRIVER
from tests.railnet.controllers.gangs.gang_cluster import GangCluster, Leader, path
from tests.railnet.gangs.slices_and_claims import VF, a_claim, slices_of

JsonObject = dict[str, Any]
ONE_VF = {"containers": [{"name": "main", "resources": {"requests": {VF: "1"}, "limits": {VF: "1"}}}]}
OF_TEMPLATE = {
    "containers": [{"name": "main", "resources": {"claims": [{"name": "vf"}]}}],
    "resourceClaims": [{"name": "vf", "resourceClaimTemplateName": "vfs"}],
}


def a_cluster(*vfs: int, unhealthy: int = 0) -> GangCluster:
    """Return a cluster of nodes of one leaf, of which each offers so many VFs by DRA."""
    cluster = GangCluster()
    for number, count in enumerate(vfs):
        cluster.add_node(f"a-{number}", "a")
        offer(cluster, f"a-{number}", count, unhealthy)
    return cluster


def offer(cluster: GangCluster, node: str, vfs: int, unhealthy: int = 0) -> None:
    for document in slices_of(node, vfs, unhealthy):
        cluster.put(f"/apis/resource.k8s.io/v1/resourceslices/{document['metadata']['name']}", document)


def put_claim(cluster: GangCluster, claim: JsonObject) -> None:
    cluster.put(f"/apis/resource.k8s.io/v1/namespaces/ml/resourceclaims/{claim['metadata']['name']}", claim)


def made_claim(cluster: GangCluster, pod: str, count: int = 1) -> None:
    """Make the claim of a pod's template, as its controller does."""
    put_claim(cluster, a_claim(f"{pod}-vf", count))
    cluster.change(
        pod,
        lambda found: found["status"].update(resourceClaimStatuses=[{"name": "vf", "resourceClaimName": f"{pod}-vf"}]),
    )


def test_gang_is_placed_by_the_devices_of_slices() -> None:
    cluster = a_cluster(2, 2)
    cluster.add_gang("bert", 4, spec=ONE_VF)
    Leader(cluster).settle()

    assert cluster.gated() == []
    assert ("GangPlaced", "Job/bert", "4 members placed in railnet.io/leaf=a") in cluster.events


def test_gang_larger_than_the_healthy_devices_waits_with_words_until_one_is_well() -> None:
    cluster = a_cluster(4, unhealthy=1)
    cluster.add_gang("bert", 4, spec=ONE_VF)
    leader = Leader(cluster)
    leader.settle()

    assert len(cluster.gated()) == 4
    (text,) = [text for reason, _, text in cluster.events if reason == "GangWaiting"]
    assert f"has room for 3 (short: {VF} 1)" in text
    offer(cluster, "a-0", 4)
    leader.settle()
    assert cluster.gated() == []


def test_gang_for_which_the_devices_never_suffice_is_refused_with_words() -> None:
    cluster = a_cluster(2, 1)
    cluster.add_gang("bert", 4, spec=ONE_VF)
    Leader(cluster).settle()

    assert len(cluster.gated()) == 4
    assert [reason for reason, _, _ in cluster.events] == ["GangRefused"]


def test_devices_that_pods_have_are_not_given_again() -> None:
    cluster = a_cluster(4)
    leader = Leader(cluster)
    for name, gang in (("first", 3), ("second", 2)):
        cluster.add_gang(name, gang, spec=ONE_VF)
        leader.settle()
        for pod in cluster.pods():
            if pod.startswith(name) and pod not in cluster.gated():
                cluster.bind(pod, "a-0")
        leader.settle()

    assert cluster.gated() == ["second-0", "second-1"]
    for number in range(3):
        cluster.remove(path(f"first-{number}"))
    leader.settle()
    assert cluster.gated() == []


def test_gang_by_claims_waits_for_them_and_is_placed_where_devices_are() -> None:
    """A node of the device plugin has the resource, and cannot serve a claim."""
    cluster = a_cluster(0, 4)
    cluster.objects["/api/v1/nodes/a-0"]["status"]["allocatable"][VF] = "8"
    cluster.add_gang("bert", 2, spec=OF_TEMPLATE)
    leader = Leader(cluster)
    leader.settle()
    assert len(cluster.gated()) == 2
    for pod in ("bert-0", "bert-1"):
        made_claim(cluster, pod, 2)
    leader.settle()

    assert cluster.gated() == []
    seats = leader.gangs._planning.observed.cluster.seats(("ml", "bert"))
    assert [seat.node for seat in seats] == ["a-1", "a-1"]


def test_claims_of_other_pods_take_devices() -> None:
    cluster = a_cluster(4)
    put_claim(cluster, a_claim("big", 3, held=("pci-0000-00-00-0",)))
    other = {
        "metadata": {"namespace": "ml", "name": "other", "labels": {}},
        "spec": {
            "containers": [{"name": "main"}],
            "nodeName": "a-0",
            "resourceClaims": [{"name": "vf", "resourceClaimName": "big"}],
        },
        "status": {"phase": "Running"},
    }
    cluster.put(path("other"), other)
    cluster.add_gang("bert", 2, spec=ONE_VF)
    leader = Leader(cluster)
    leader.settle()

    assert len(cluster.gated()) == 2
    cluster.remove(path("other"))
    leader.settle()
    assert cluster.gated() == []


def test_device_plugin_serves_a_node_that_offers_both_ways() -> None:
    """The scheduler takes no device of a slice for a pod's resource where the node has any of it in `allocatable`."""
    cluster = a_cluster(8)
    cluster.objects["/api/v1/nodes/a-0"]["status"]["allocatable"][VF] = "2"
    cluster.add_gang("bert", 3, spec=ONE_VF)
    Leader(cluster).settle()

    assert len(cluster.gated()) == 3


def test_node_that_is_gone_is_forgotten_with_its_slices_in_any_order() -> None:
    cluster = a_cluster(4, 4)
    leader = Leader(cluster)
    leader.settle()
    devices = leader.gangs._planning.observed._devices
    cluster.remove("/api/v1/nodes/a-0")
    leader.settle()
    for node in ("a-0", "a-1"):
        cluster.remove(f"/apis/resource.k8s.io/v1/resourceslices/{node}-{DRIVER}-0")
    leader.settle()
    assert set(devices._of) == {"a-1"}  # kubelet may be starting there
    cluster.remove("/api/v1/nodes/a-1")
    leader.settle()

    assert not devices._of
    assert not devices._slices


def test_slice_of_another_driver_gives_no_room() -> None:
    cluster = a_cluster()
    cluster.add_node("a-0", "a")
    (document,) = slices_of("a-0", 8)
    document["spec"]["driver"] = f"other.{DRIVER}"
    cluster.put("/apis/resource.k8s.io/v1/resourceslices/other", document)
    cluster.add_gang("bert", 1, spec=ONE_VF)
    Leader(cluster).settle()

    assert cluster.gated() == ["bert-0"]
