"""Pods have fewer VFs than the node has rails: rails of one fabric reach each other, and no packet for them leaves by eth0."""

import json
import os
import subprocess
from collections.abc import Iterator
from ipaddress import ip_interface
from pathlib import Path

import pytest

from railnet.vf.guid import Guid
from railnet.vf.pci_address import PciAddress
from simnode.hardware.fabric import cable
from simnode.hardware.pf_properties import SimulatedPf
from simnode.node import RESOURCE, Node, Pod
from simnode.ping import ping
from simnode.preinstalled_files import CONFIGURATION
from simnode.waiting import wait_until

JOURNAL = Path("/run/railnet/journal")
PFS = (SimulatedPf(), SimulatedPf(PciAddress(0, 0x0C, 0, 0), Guid(0xB8599F0300F98F10), "ibs6"))


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    """Provide a node whose two rails are on one fabric, as with one subnet manager for all rails."""
    with Node(Path(os.environ["RAILNET_CNI_PLUGINS"]), PFS, vfs=2) as node:
        for rail, end in enumerate(cable()):
            node.uplink(rail, end)
        node.install()
        node.start_daemon()
        yield node


def ip(pod: Pod, *words: str) -> list[dict[str, object]]:
    done = subprocess.run(["ip", "-json", "-netns", pod.netns.name, *words], capture_output=True, check=True)
    return json.loads(done.stdout)


def inside(pod: Pod, *command: str) -> None:
    subprocess.run(["nsenter", f"--net={pod.netns}", *command], capture_output=True, check=True)


def attachments(pod: Pod) -> list[dict[str, object]]:
    """Return the rails in the records of a pod's namespace."""
    records = [json.loads(path.read_text()) for path in JOURNAL.iterdir()]
    return [rail for record in records if record["netns"]["path"] == str(pod.netns) for rail in record["attachments"]]


def address(pod: Pod, ifname: str) -> str:
    (shown,) = ip(pod, "address", "show", "dev", ifname)
    return next(entry["local"] for entry in shown["addr_info"] if entry["family"] == "inet")


def way(pod: Pod, destination: str) -> tuple[object, object]:
    """Return the interface and the gateway, if any, by which a pod's kernel sends to an address."""
    (route,) = ip(pod, "route", "get", destination)
    return route["dev"], route.get("gateway")


def rail(pod: Pod, ifname: str = "net1") -> str:
    return str(ip_interface(f"{address(pod, ifname)}/17").network)


def test_pods_on_different_rails_of_one_fabric_reach_each_other_over_net1(node: Node) -> None:
    one, other = node.run_pod("one", vfs=1), node.run_pod("other", vfs=1)
    rails = {rail(one), rail(other)}
    ways = way(one, address(other, "net1")), way(other, address(one, "net1"))
    answered = ping(one.netns, address(other, "net1"))
    node.remove_pod(one)
    node.remove_pod(other)

    assert rails == {"10.56.0.0/17", "10.56.128.0/17"}  # kubelet spread the pods over the rails
    assert ways == (("net1", None), ("net1", None))
    assert answered


def test_pod_reaches_each_rail_that_it_has_over_that_rail(node: Node) -> None:
    wide, one = node.run_pod("wide", vfs=2), node.run_pod("one", vfs=1)
    same = next(ifname for ifname in ("net1", "net2") if rail(wide, ifname) == rail(one))
    ways = way(wide, address(one, "net1")), way(one, address(wide, same))
    node.remove_pod(wide)
    node.remove_pod(one)

    assert ways == ((same, None), ("net1", None))


SETTINGS = ("arp_ignore", "arp_announce", "rp_filter")


def settings(pod: Pod, ifname: str) -> list[int]:
    files = [f"/proc/sys/net/ipv4/conf/{ifname}/{name}" for name in SETTINGS]
    shown = subprocess.run(["nsenter", f"--net={pod.netns}", "cat", *files], capture_output=True, check=True)
    return [int(line) for line in shown.stdout.split()]


def rules(pod: Pod) -> dict[object, object]:
    """Return the rules that the kernel did not make: source and table."""
    return {rule["src"]: rule["table"] for rule in ip(pod, "rule") if rule["priority"] not in (0, 32766, 32767)}


def test_rails_of_one_pod_are_kept_apart(node: Node) -> None:
    pod = node.run_pod("wide", vfs=2)
    net1, net2 = address(pod, "net1"), address(pod, "net2")
    found = settings(pod, "net1"), settings(pod, "net2")
    tables = [
        (route["dst"], route["dev"]) for table in ("5601", "5602") for route in ip(pod, "route", "show", "table", table)
    ]
    own_rules = rules(pod)
    ways = [
        ip(pod, "route", "get", other, "from", own)[0]["dev"]
        for own in (net1, net2)
        for other in ("10.56.3.9", "10.56.131.9")
    ]
    node.remove_pod(pod)

    assert found == ([1, 2, 2], [1, 2, 2])
    assert own_rules == {net1: "5601", net2: "5602"}
    assert tables == [("10.56.0.0/16", "net1"), ("10.56.0.0/16", "net2")]
    assert ways == ["net1", "net1", "net2", "net2"]


def test_answer_leaves_by_the_rail_that_was_asked_however_strict_the_pod_filters(node: Node) -> None:
    one, other = node.run_pod("one", vfs=2), node.run_pod("other", vfs=2)
    for name in ("all", "default"):
        inside(other, "sysctl", "-qw", f"net.ipv4.conf.{name}.rp_filter=1")
    answered = {
        (own, asked): ping(one.netns, address(other, asked), ifname=address(one, own))
        for own in ("net1", "net2")
        for asked in ("net1", "net2")
    }
    node.remove_pod(one)
    node.remove_pod(other)

    assert all(answered.values()), answered


def test_pod_with_one_rail_has_the_kernels_settings_and_no_rule(node: Node) -> None:
    pod = node.run_pod("one", vfs=1)
    found = settings(pod, "net1"), settings(pod, "lo"), rules(pod)
    node.remove_pod(pod)

    assert found[0] == found[1]
    assert found[2] == {}


def test_del_takes_rules_and_settings_back_and_a_second_add_in_the_same_namespace_has_its_own(node: Node) -> None:
    pod = node.run_pod("wide", vfs=2)
    names = [str(rail["host_ifname"]) for rail in attachments(pod)]
    first = rules(pod)
    node.runtime.delete(pod.sandbox)
    node.wait_for_answered_deletes()
    between = rules(pod)
    on_node = [Path(f"/proc/sys/net/ipv4/conf/{name}/{key}").read_text() for name in names for key in SETTINGS]
    node.runtime.add(pod.sandbox)
    second = rules(pod)
    node.remove_pod(pod)

    assert (len(first), between, second) == (2, {}, first)
    assert on_node == ["0\n"] * 6


@pytest.mark.parametrize(
    "change",
    [
        "ip rule del from {0}",
        "ip rule add from {0} table 5602 priority 5600",
        "ip rule add from {0} table 5601 priority 5600 fwmark 7",
        "ip route replace blackhole 10.56.0.0/16 table 5602",
        "ip link set net1 down",
    ],
)
def test_pod_that_changes_its_rules_is_taken_back_and_attached_again(node: Node, change: str) -> None:
    pod = node.run_pod("wide", vfs=2)
    inside(pod, *change.format(address(pod, "net1")).split())
    node.runtime.delete(pod.sandbox)
    node.runtime.add(pod.sandbox)
    found = rules(pod).values()
    node.remove_pod(pod)

    assert {"5601", "5602"} <= set(found)
    assert list(JOURNAL.iterdir()) == []


def test_record_that_was_lost_is_rebuilt_with_the_rules_that_del_removes(node: Node) -> None:
    pod = node.run_pod("wide", vfs=2)
    node.kill_daemon()
    (record,) = JOURNAL.iterdir()
    record.unlink()
    node.start_daemon()
    wait_until(lambda: len(attachments(pod)) == 2, 20, "the rebuilt record")
    node.runtime.delete(pod.sandbox)
    node.wait_for_answered_deletes()
    left = rules(pod)
    node.remove_pod(pod)

    assert left == {}


def test_default_route_stays_with_eth0(node: Node) -> None:
    pod = node.run_pod("one", vfs=1)
    default = [(route["dev"], "gateway" in route) for route in ip(pod, "route", "show", "default")]
    node.remove_pod(pod)

    assert default == [("eth0", True)]


def test_container_is_told_the_rail_of_each_device_if_the_pool_says_so_and_add_accepts_it(node: Node) -> None:
    before = CONFIGURATION.read_text()
    document = json.loads(before)
    document["pools"] = [{"resource": RESOURCE, "select": {"linkType": ["infiniband"]}, "ncclRails": True}]
    node.stop_daemon()
    CONFIGURATION.write_text(json.dumps(document))
    try:
        node.start_daemon()
        pod = node.run_pod("told", 2)
        (allocation,) = node.kubelet.allocations(pod.identity)
        devices = [rail["rdma"] for rail in attachments(pod)]
        node.remove_pod(pod)
    finally:
        node.stop_daemon()
        CONFIGURATION.write_text(before)
        node.start_daemon()

    assert allocation.response.envs["NCCL_IB_HCA"] == f"={devices[0]}:1:0,{devices[1]}:1:1"
