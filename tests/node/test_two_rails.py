"""Pods have fewer VFs than the node has rails: rails of one fabric reach each other, and no packet for them leaves by eth0."""

import json
import os
import subprocess
from collections.abc import Iterator
from ipaddress import ip_interface
from pathlib import Path

import pytest

from simnode.hardware.fabric import cable
from simnode.hardware.pf_properties import SimulatedPf
from simnode.node import Node, Pod
from simnode.ping import ping
from vf.guid import Guid
from vf.pci_address import PciAddress

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


def test_default_route_stays_with_eth0(node: Node) -> None:
    pod = node.run_pod("one", vfs=1)
    default = [(route["dev"], "gateway" in route) for route in ip(pod, "route", "show", "default")]
    node.remove_pod(pod)

    assert default == [("eth0", True)]
