"""Which network a pod gets: what it asks for, and what its namespace may."""

from contextlib import suppress
from ipaddress import ip_interface, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vf.errors import Misconfigured, NotPermitted
from vf.network import (
    ADDRESS_ANNOTATION,
    NETWORK_ANNOTATION,
    Chosen,
    Limit,
    Network,
    Networks,
    NoIpam,
    StaticIpam,
    lacks,
)

DEFAULT, VERBS = Network("default"), Network("verbs", ipam=NoIpam())
FIXED = Network("fixed", ipam=StaticIpam(ip_network("10.60.0.0/16")))
NETWORKS = Networks(
    {network.name: network for network in (DEFAULT, VERBS, FIXED)},
    {"*": Limit(("default", "fixed")), "team-a": Limit(("verbs", "fixed"), static=True), "locked": Limit(())},
)


def chosen(namespace: str, rails: int = 1, **annotations: str) -> Chosen:
    keys = {"network": NETWORK_ANNOTATION, "ips": ADDRESS_ANNOTATION}
    return NETWORKS.choose(namespace, {keys[key]: value for key, value in annotations.items()}, rails)


def test_pod_that_asks_for_nothing_gets_the_default_network() -> None:
    assert chosen("anywhere") == Chosen(DEFAULT)


def test_node_with_no_configuration_has_the_default_network_for_everybody() -> None:
    assert Networks().choose("anywhere", {}, 8) == Chosen(DEFAULT)


def test_annotation_chooses_a_network_that_the_namespace_may_use() -> None:
    assert chosen("team-a", network="verbs") == Chosen(VERBS)


@pytest.mark.parametrize(
    ("namespace", "network", "allowed"),
    [("team-b", "verbs", "default, fixed"), ("team-a", "default", "verbs, fixed"), ("locked", "default", "none")],
)
def test_network_that_the_namespace_may_not_use_is_refused(namespace: str, network: str, allowed: str) -> None:
    with pytest.raises(NotPermitted, match=f"{namespace!r} may not use network {network!r}.*: {allowed}$"):
        chosen(namespace, network=network)


def test_namespaces_own_limit_stands_in_place_of_everybodys() -> None:
    with pytest.raises(NotPermitted, match="'team-a' may not use network 'default'"):
        chosen("team-a")


def test_permitted_network_that_the_node_has_not_is_told_with_those_it_has() -> None:
    networks = Networks({"default": DEFAULT}, {"*": Limit(("default", "gone"))})

    with pytest.raises(Misconfigured, match="network is 'gone'; this node's networks are: default"):
        networks.choose("team", {NETWORK_ANNOTATION: "gone"}, 1)


def test_addresses_are_given_in_rail_order() -> None:
    assert chosen("team-a", 2, network="fixed", ips="10.60.1.5/24, 10.60.2.5/24") == Chosen(
        FIXED, (ip_interface("10.60.1.5/24"), ip_interface("10.60.2.5/24"))
    )


@pytest.mark.parametrize("address", ["fd61::ffff:ffff:ffff:ffff/64", "10.60.0.1/31"])
def test_last_address_is_a_hosts_where_there_is_no_broadcast(address: str) -> None:
    network = Network("anywhere", ipam=StaticIpam())
    networks = Networks({network.name: network}, {"*": Limit((network.name,), static=True)})
    annotations = {NETWORK_ANNOTATION: network.name, ADDRESS_ANNOTATION: address}

    assert networks.choose("team", annotations, 1).static == (ip_interface(address),)


def test_addresses_are_refused_where_the_namespace_may_not_name_them() -> None:
    with pytest.raises(NotPermitted, match=r"'team-b' may not name addresses.*'static: true'"):
        chosen("team-b", network="fixed", ips="10.60.1.5/24")


def test_address_outside_the_networks_range_is_refused() -> None:
    with pytest.raises(NotPermitted, match=r"10\.70\.0\.1, which is not in the network's range 10\.60\.0\.0/16"):
        chosen("team-a", network="fixed", ips="10.70.0.1/24")


@pytest.mark.parametrize(
    ("network", "ips", "words"),
    [
        ("verbs", "10.60.1.5/24", "network 'verbs' gives addresses itself"),
        ("fixed", None, "static addresses, and the pod names none: annotate it with railnet.io/net1-ip"),
        ("fixed", "10.60.1.5/24,10.60.2.5/24", "names 2 addresses, but the pod has 1 VFs"),
        ("fixed", "10.60.1.5", "has no prefix length; it should be like"),
        ("fixed", "", "'' has no prefix length"),
        ("fixed", "10.60.1.500/24", "it should be like"),
        ("fixed", "10.60.1.0/24", "no address of a host"),
        ("fixed", "10.60.1.255/24", "no address of a host"),
        ("fixed", "fe80::1%eth0/64", "names a zone"),
    ],
)
def test_addresses_that_make_no_sense_are_told(network: str, ips: str | None, words: str) -> None:
    with pytest.raises((Misconfigured, NotPermitted), match=words):
        chosen("team-a", network=network, **({} if ips is None else {"ips": ips}))


@pytest.mark.parametrize("ips", ["10.60.1.5/" + "9" * 100_000, "x" * 100_000 + "/24", "%" * 100_000 + "/24"])
def test_what_a_pod_writes_is_told_in_short(ips: str) -> None:
    with pytest.raises(Misconfigured) as told:
        chosen("team-a", network="fixed", ips=ips)

    assert len(str(told.value)) < 300


def test_address_named_twice_is_refused() -> None:
    with pytest.raises(Misconfigured, match="names an address twice"):
        chosen("team-a", 2, network="fixed", ips="10.60.1.5/24,10.60.1.5/16")


@given(st.text(), st.text(), st.integers(1, 8))
def test_whatever_a_pod_writes_is_chosen_or_refused_in_words(network: str, ips: str, rails: int) -> None:
    with suppress(Misconfigured, NotPermitted):
        assert len(chosen("team-a", rails, network=network, ips=ips).static) == rails


@pytest.mark.parametrize(
    ("pkey", "table", "why"),
    [
        (0xFFFF, (0xFFFF,), None),
        (0x8001, (0xFFFF, 0x8001), None),
        (0x0001, (0x8001,), None),
        (0x0001, (0x0001,), None),
        (0x8001, (0x0001, 0x8001), None),
        (0x8001, (0xFFFF, 0x0001), "its port is only a limited member of it (0x0001)"),
        (0x8001, (0xFFFF,), "its port is in the partitions 0xffff"),
        (0x8001, (), "its port is in the partitions none"),
    ],
)
def test_port_needs_the_partition_and_the_networks_membership(
    pkey: int, table: tuple[int, ...], why: str | None
) -> None:
    assert lacks(pkey, table) == why
