"""Pods that ask for no VF, one, and two, as their user sees them."""

import pytest

from tests.cluster.node import PFS, VFS, ClusterNode
from tests.cluster.pods import pod

PING_BYTES = 1400


def test_node_advertises_its_vfs(node: ClusterNode) -> None:
    assert node.allocatable() == VFS * len(PFS)


@pytest.mark.parametrize(("vfs", "interfaces"), [(0, ["eth0"]), (1, ["eth0", "net1"]), (2, ["eth0", "net1", "net2"])])
def test_pod_has_a_rail_for_each_vf_it_asks_for(node: ClusterNode, vfs: int, interfaces: list[str]) -> None:
    name = node.run("train", vfs)

    assert sorted(node.addresses(name)) == interfaces


def test_rails_of_a_pod_are_on_different_cards(node: ClusterNode) -> None:
    name = node.run("wide", 2)

    (record,) = node.records(name)
    cards = {one["vf"].rpartition(".")[0] for one in record["attachments"]}
    assert len(cards) == 2


def test_container_has_the_device_of_its_vf_and_no_other(node: ClusterNode) -> None:
    name = node.run("train", 1)

    (record,) = node.records(name)
    number = record["attachments"][0]["rdma"].removeprefix("mlx5_")
    assert node.execute(name, "ls", "/dev/infiniband").split() == ["rdma_cm", f"uverbs{number}"]


def test_pod_on_the_hosts_network_has_its_vfs_device_and_no_net1_and_the_vf_is_free_at_its_end(
    node: ClusterNode,
) -> None:
    described = pod("host", 1)
    described["spec"]["hostNetwork"] = True
    node.create(described)
    node.wait_until_ready("host")
    variables = node.execute("host", "cat", "/proc/1/environ").split("\0")
    environment = dict(one.split("=", 1) for one in variables if one)
    devices = node.execute("host", "ls", "/dev/infiniband").split()
    interfaces, records = set(node.execute("host", "ls", "/sys/class/net").split()), node.records("host")
    node.containerd.kill_container("host")  # kubelet asks Railnet before each start of a container
    node.wait_until_restarted("host")
    left = node.forget_pods()
    node.wait_for_vfs(VFS * len(PFS))
    wide = node.run("wide", VFS * len(PFS))

    number = environment["UCX_NET_DEVICES"].removeprefix("mlx5_").removesuffix(":1")
    assert devices == ["rdma_cm", f"uverbs{number}"]
    assert interfaces >= {f"{pf.netdev}v{index}" for pf in PFS for index in range(VFS)}
    assert "net1" not in interfaces
    assert records == left == []
    (record,) = node.records(wide)
    assert environment["PCIDEVICE_RDMA_IB_VF"] in [one["vf"] for one in record["attachments"]]


def test_railnet_status_shows_which_pod_has_which_vf(node: ClusterNode) -> None:
    name = node.run("train", 1)
    (record,) = node.records(name)

    lines = node.railnet.status().splitlines()

    vf = record["attachments"][0]["vf"]
    assert lines[0].endswith(": ready")
    assert [line.split()[:3] for line in lines if name in line] == [[f"default/{name}", "net1", vf]]


def test_two_pods_talk_over_the_fabric_of_their_rail(node: ClusterNode) -> None:
    one, other = node.run("one", 2), node.run("other", 2)
    before = [fabric.counters.bytes for fabric in node.fabrics]

    answered = node.pings(one, "net1", node.addresses(other)["net1"], PING_BYTES)

    carried = [fabric.counters.bytes - count for fabric, count in zip(node.fabrics, before, strict=True)]
    assert answered
    # Request and reply, each of an IPv4 header, an ICMP header and ping's bytes. A host solicits routers on each rail from time to time, by
    # some dozens of bytes.
    assert [octets // (20 + 8 + PING_BYTES) for octets in carried] == [2, 0]


def test_rail_carries_no_traffic_without_its_fabric(node: ClusterNode) -> None:
    one, other = node.run("one", 2), node.run("other", 2)
    for fabric in node.fabrics:
        fabric.stop()
    answered = node.pings(one, "net1", node.addresses(other)["net1"])

    assert not answered
    assert node.pings(one, "eth0", node.addresses(other)["eth0"])


def test_too_few_vfs_leave_a_pod_pending_with_the_schedulers_reason(node: ClusterNode) -> None:
    wide = node.run("wide", VFS * len(PFS))
    late = node.bring("late", 1)

    node.wait_for_event(late, "Insufficient rdma/ib_vf")
    phase = node.status(late)["phase"]
    node.delete(wide)
    node.wait_until_ready(late)

    assert phase == "Pending"
