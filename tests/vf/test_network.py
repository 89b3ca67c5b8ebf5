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
        ("fixed", "10.60.1.0/24", "not a host's address"),
        ("fixed", "10.60.1.255/24", "not a host's address"),
        ("fixed", "fe80::1%eth0/64", "names a zone"),
        ("fixed", "10.60.0.0/32", r"not a host's address in 10\.60\.0\.0/16"),
        ("fixed", "10.60.255.255/32", r"not a host's address in 10\.60\.0\.0/16"),
        ("fixed", "10.60.1.5/8", "prefix is wider than the network's range"),
        ("fixed", "::ffff:10.60.1.5/112", "not a host's address"),
        ("fixed", "fd60::5/64", "is not in the network's range"),
        ("fixed", "10.60.1.5/24\uff0c10.60.2.5/24", "it should be like"),
        ("fixed", "10.60.1.5/24;10.60.2.5/24", "it should be like"),
        ("fixed", "010.60.1.5/24", "it should be like"),
        ("fixed", "10.60.1.5/255.255.255.0/24", "it should be like"),
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


ANYWHERE = Networks(
    {"default": DEFAULT, "anywhere": Network("anywhere", ipam=StaticIpam())},
    {"*": Limit(("anywhere",), static=True)},
)


def asked_anywhere(ips: str, rails: int = 1) -> Chosen:
    return ANYWHERE.choose("team", {NETWORK_ANNOTATION: "anywhere", ADDRESS_ANNOTATION: ips}, rails)


@pytest.mark.parametrize(
    "address",
    [
        "::ffff:10.60.0.5/112",
        "2002:a3c:5::1/64",
        "169.254.169.254/32",
        "fe80::1/64",
        "255.255.255.255/32",
        "240.0.0.1/8",
        "0.0.0.1/8",
        "127.0.0.2/8",
        "224.0.0.5/24",
        "::/128",
        "::1/128",
        "ff02::1/128",
    ],
)
def test_address_that_means_something_else_everywhere_is_no_hosts(address: str) -> None:
    with pytest.raises(Misconfigured, match="not a host's address"):
        asked_anywhere(address)


@pytest.mark.parametrize("address", ["10.56.3.1/32", "10.56.0.0/32", "10.1.2.3/8"])
def test_address_among_those_that_nodes_give_is_refused(address: str) -> None:
    with pytest.raises(NotPermitted, match=r"range 10\.56\.0\.0/16 of network 'default' overlap"):
        asked_anywhere(address)


def test_two_rails_cannot_have_one_prefix() -> None:
    with pytest.raises(Misconfigured, match="two links of a pod cannot have one prefix"):
        asked_anywhere("10.61.1.5/24,10.61.1.6/24", 2)


@pytest.mark.parametrize(
    "network", ["Verbs", "verbs ", " verbs", "verbs\n", "verbs\0", "v\u0435rbs", "*", "", "default,verbs"]
)
def test_name_of_odd_spelling_is_another_name(network: str) -> None:
    with pytest.raises(NotPermitted, match="may not use network"):
        chosen("team-a", network=network)


@pytest.mark.parametrize("key", ["Railnet.io/network", "railnet.io/network ", "railnet.io/networks", "network"])
def test_annotation_of_odd_spelling_is_another_annotation(key: str) -> None:
    assert NETWORKS.choose("anywhere", {key: "verbs"}, 1) == Chosen(DEFAULT)


POOLS = Networks(limits={"*": Limit(pools=("rdma/a",)), "team-b": Limit(pools=("rdma/a", "rdma/b")), "open": Limit()})


@pytest.mark.parametrize(
    ("namespace", "resources"), [("x", {"rdma/a"}), ("team-b", {"rdma/a", "rdma/b"}), ("open", {"rdma/z"})]
)
def test_namespace_has_the_pools_of_its_limit(namespace: str, resources: set[str]) -> None:
    POOLS.permit(namespace, resources)


def test_pool_that_is_not_in_the_namespaces_limit_is_refused_beside_one_that_is() -> None:
    with pytest.raises(NotPermitted, match=r"'x' may not have rdma/b, rdma/c; 'limits' lets them have: rdma/a$"):
        POOLS.permit("x", {"rdma/a", "rdma/c", "rdma/b"})
