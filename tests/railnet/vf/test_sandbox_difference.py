"""The first difference between a sandbox and its record."""

from dataclasses import replace
from ipaddress import ip_interface, ip_network
from typing import Any

import pytest

from railnet.vf.arp_and_source_routing import APART
from railnet.vf.guid import Guid
from railnet.vf.record import Netns
from railnet.vf.sandbox_difference import SandboxLink, of_rail, of_sandbox
from railnet.vf.steps import RailRouting, Route, Rule
from tests.deviceplugin.builders import an_rdma_device
from tests.railnet.vf.builders import a_record, an_attachment

RECORD = a_record(an_attachment(), stage="attached")
ADDRESS, OTHER = ip_interface("10.56.3.1/16"), ip_interface("10.56.3.1/24")
RAIL = an_attachment(addresses=(ADDRESS,))
RDMA = an_rdma_device(4, node_guid=RAIL.guid)
LINK = SandboxLink("net1", "InfiniBand", 4092, up=True, addresses=frozenset({ADDRESS}))


def test_sandbox_that_equals_its_record_has_no_difference() -> None:
    assert of_sandbox(RECORD, RECORD.netns) is None
    assert of_rail(RAIL, LINK, RDMA) is None


def test_another_path_of_the_same_namespace_is_no_difference() -> None:
    assert of_sandbox(RECORD, RECORD.netns._replace(path="/proc/7/ns/net")) is None


SANDBOXES = {
    "planned": (replace(RECORD, stage="planned"), RECORD.netns, "its record is 'planned'"),
    "gone": (RECORD, None, "network namespace /run/netns/cni-1 is gone"),
    "another": (
        RECORD,
        Netns("/run/netns/cni-1", 4, 7),
        "is another network namespace (7) than the one with the rails",
    ),
}


@pytest.mark.parametrize(("record", "netns", "message"), SANDBOXES.values(), ids=SANDBOXES.keys())
def test_difference_of_the_sandbox_is_named(record: Any, netns: Netns | None, message: str) -> None:
    assert message in (of_sandbox(record, netns) or "")


LINKS = {
    "renamed": (replace(LINK, ifname="x"), "its name is x; it should be net1"),
    "Ethernet": (replace(LINK, link_layer="Ethernet"), "its link layer is Ethernet; it should be InfiniBand"),
    "another kind": (replace(LINK, link_layer=None), "its link layer is missing; it should be InfiniBand"),
    "MTU": (replace(LINK, mtu=2044), "its MTU is 2044; it should be 4092"),
    "down": (replace(LINK, up=False), "its state is down; it should be up"),
    "no address": (replace(LINK, addresses=frozenset()), "its address is missing; it should be 10.56.3.1/16"),
    "prefix": (replace(LINK, addresses=frozenset({OTHER})), "its address is missing; it should be 10.56.3.1/16"),
}


@pytest.mark.parametrize(("link", "message"), LINKS.values(), ids=LINKS.keys())
def test_difference_of_the_link_is_named(link: SandboxLink, message: str) -> None:
    assert of_rail(RAIL, link, RDMA) == f"net1 (VF 0000:03:00.1): {message}"


RANGE = Route(ip_network("10.56.0.0/16"), None)
APART_RAIL = replace(RAIL, routing=RailRouting(APART, 5601, (ADDRESS.ip,), (RANGE,)))
APART_LINK = replace(LINK, ipv4=APART, rules=frozenset({Rule(ADDRESS.ip, 5601)}), routes=frozenset({(5601, RANGE)}))
ROUTING = {
    "ARP": (
        replace(APART_LINK, ipv4=APART._replace(arp_ignore=0)),
        "its arp_ignore is 0; it should be 1",
    ),
    "reverse path": (
        replace(APART_LINK, ipv4=APART._replace(rp_filter=1)),
        "its rp_filter is 1; it should be 2",
    ),
    "no IPv4": (replace(APART_LINK, ipv4=None), "its arp_ignore is missing; it should be 1"),
    "no rule": (
        replace(APART_LINK, rules=frozenset()),
        "its rule from 10.56.3.1 is missing; it should be table 5601",
    ),
    "another table": (
        replace(APART_LINK, rules=frozenset({Rule(ADDRESS.ip, 5602)})),
        "its rule from 10.56.3.1 is missing; it should be table 5601",
    ),
    "no route": (
        replace(APART_LINK, routes=frozenset()),
        "its route to 10.56.0.0/16 is missing; it should be in table 5601",
    ),
}


def test_rail_that_is_kept_apart_as_recorded_has_no_difference() -> None:
    assert of_rail(APART_RAIL, APART_LINK, RDMA) is None


@pytest.mark.parametrize(("link", "message"), ROUTING.values(), ids=ROUTING.keys())
def test_difference_of_what_keeps_rails_apart_is_named(link: SandboxLink, message: str) -> None:
    assert of_rail(APART_RAIL, link, RDMA) == f"net1 (VF 0000:03:00.1): {message}"


def test_link_that_is_not_in_the_sandbox_is_named() -> None:
    assert of_rail(RAIL, None, RDMA) == "net1: the netdev of VF 0000:03:00.1 is not in the sandbox"


@pytest.mark.parametrize(
    ("rdma", "message"),
    [
        (None, "its RDMA device is missing; it should be mlx5_4"),
        (replace(RDMA, name="mlx5_9"), "its RDMA device is mlx5_9; it should be mlx5_4"),
        (replace(RDMA, node_guid=Guid(7)), f"its node GUID is {Guid(7)}; it should be {RAIL.guid}"),
        (
            replace(RDMA, uverbs=RDMA.uverbs._replace(minor=1)),
            "its character device is uverbs4 (231:1); it should be uverbs4 (231:196)",
        ),
        (replace(RDMA, uverbs=None), "its character device is missing"),
    ],
    ids=["gone", "renamed", "GUID", "renumbered", "no verbs"],
)
def test_difference_of_the_rdma_device_is_named(rdma: Any, message: str) -> None:
    assert message in (of_rail(RAIL, LINK, rdma) or "")


def test_rdma_device_is_no_difference_if_the_record_has_none() -> None:
    assert of_rail(replace(RAIL, rdma=None, guid=None, uverbs=None), LINK, RDMA) is None


def test_first_of_several_differences_is_named() -> None:
    assert "its MTU" in (of_rail(RAIL, replace(LINK, mtu=1500, up=False, addresses=frozenset()), None) or "")


def test_additional_address_is_no_difference() -> None:
    assert of_rail(RAIL, replace(LINK, addresses=frozenset({ADDRESS, OTHER})), RDMA) is None
