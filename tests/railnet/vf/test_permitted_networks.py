"""The choice of a pod's network and static addresses, and the limits of its namespace."""

from contextlib import suppress
from ipaddress import ip_interface, ip_network
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from railnet.errors import Misconfigured, NotPermitted
from railnet.vf.permitted_networks import (
    ADDRESS_ANNOTATION,
    NETWORK_ANNOTATION,
    STICKY_ANNOTATION,
    ChosenNetwork,
    Limit,
    Network,
    Networks,
    NoIpam,
    StaticIpam,
    StickyIpam,
    why_not_in_partition,
)

DEFAULT, VERBS = Network("default"), Network("verbs", ipam=NoIpam())
FIXED = Network("fixed", ipam=StaticIpam(ip_network("10.60.0.0/16")))
NETWORKS = Networks(
    {network.name: network for network in (DEFAULT, VERBS, FIXED)},
    {"*": Limit(("default", "fixed")), "team-a": Limit(("verbs", "fixed"), static=True), "locked": Limit(())},
)


def chosen(namespace: str, rails: int = 1, **annotations: str) -> ChosenNetwork:
    keys = {"network": NETWORK_ANNOTATION, "ips": ADDRESS_ANNOTATION}
    return NETWORKS.choose(namespace, {keys[key]: value for key, value in annotations.items()}, rails)


def test_pod_without_annotations_gets_the_default_network() -> None:
    assert chosen("anywhere") == ChosenNetwork(DEFAULT)


def test_unconfigured_node_has_the_default_network_for_every_namespace() -> None:
    assert Networks().choose("anywhere", {}, 8) == ChosenNetwork(DEFAULT)


def test_annotation_chooses_a_network_within_the_limit() -> None:
    assert chosen("team-a", network="verbs") == ChosenNetwork(VERBS)


@pytest.mark.parametrize(
    ("namespace", "network", "allowed"),
    [("team-b", "verbs", "default, fixed"), ("team-a", "default", "verbs, fixed"), ("locked", "default", "none")],
)
def test_network_outside_the_limit_is_refused(namespace: str, network: str, allowed: str) -> None:
    with pytest.raises(NotPermitted, match=f"{namespace!r} may not use network {network!r}.*: {allowed}$"):
        chosen(namespace, network=network)


def test_namespaces_own_limit_replaces_the_general_limit() -> None:
    with pytest.raises(NotPermitted, match="'team-a' may not use network 'default'"):
        chosen("team-a")


def test_unknown_network_is_refused_with_the_names_of_the_nodes_networks() -> None:
    networks = Networks({"default": DEFAULT}, {"*": Limit(("default", "gone"))})

    with pytest.raises(Misconfigured, match="network is 'gone'; this node's networks are: default"):
        networks.choose("team", {NETWORK_ANNOTATION: "gone"}, 1)


def test_static_addresses_are_in_rail_order() -> None:
    assert chosen("team-a", 2, network="fixed", ips="10.60.1.5/24, 10.60.2.5/24") == ChosenNetwork(
        FIXED, (ip_interface("10.60.1.5/24"), ip_interface("10.60.2.5/24"))
    )


@pytest.mark.parametrize("address", ["fd61::ffff:ffff:ffff:ffff/64", "10.60.0.1/31"])
def test_last_address_is_a_hosts_if_the_prefix_has_no_broadcast_address(address: str) -> None:
    network = Network("anywhere", ipam=StaticIpam())
    networks = Networks({network.name: network}, {"*": Limit((network.name,), static=True)})
    annotations = {NETWORK_ANNOTATION: network.name, ADDRESS_ANNOTATION: address}

    assert networks.choose("team", annotations, 1).static == (ip_interface(address),)


def test_static_addresses_are_refused_without_a_limit_that_allows_them() -> None:
    with pytest.raises(NotPermitted, match=r"'team-b' may not name addresses.*'static: true'"):
        chosen("team-b", network="fixed", ips="10.60.1.5/24")


def test_address_outside_the_networks_range_is_refused() -> None:
    with pytest.raises(NotPermitted, match=r"10\.70\.0\.1, which is not in the network's range 10\.60\.0\.0/16"):
        chosen("team-a", network="fixed", ips="10.70.0.1/24")


@pytest.mark.parametrize(
    ("network", "ips", "words"),
    [
        ("verbs", "10.60.1.5/24", "network 'verbs' does not use static addresses"),
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
def test_unusable_addresses_are_refused_with_the_reason(network: str, ips: str | None, words: str) -> None:
    with pytest.raises((Misconfigured, NotPermitted), match=words):
        chosen("team-a", network=network, **({} if ips is None else {"ips": ips}))


@pytest.mark.parametrize("ips", ["10.60.1.5/" + "9" * 100_000, "x" * 100_000 + "/24", "%" * 100_000 + "/24"])
def test_message_about_a_huge_annotation_is_short(ips: str) -> None:
    with pytest.raises(Misconfigured) as raised:
        chosen("team-a", network="fixed", ips=ips)

    assert len(str(raised.value)) < 300


def test_address_named_twice_is_refused() -> None:
    with pytest.raises(Misconfigured, match="names an address twice"):
        chosen("team-a", 2, network="fixed", ips="10.60.1.5/24,10.60.1.5/16")


@given(st.text(), st.text(), st.integers(1, 8))
def test_any_annotation_is_either_accepted_or_refused_with_a_documented_error(
    network: str, ips: str, rails: int
) -> None:
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
def test_port_needs_the_networks_partition_and_membership(pkey: int, table: tuple[int, ...], why: str | None) -> None:
    assert why_not_in_partition(pkey, table) == why


ANYWHERE = Networks(
    {"default": DEFAULT, "anywhere": Network("anywhere", ipam=StaticIpam())},
    {"*": Limit(("anywhere",), static=True)},
)


def chosen_anywhere(ips: str, rails: int = 1) -> ChosenNetwork:
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
def test_address_that_no_host_can_have_is_refused(address: str) -> None:
    with pytest.raises(Misconfigured, match="not a host's address"):
        chosen_anywhere(address)


@pytest.mark.parametrize("address", ["10.56.3.1/32", "10.56.0.0/32", "10.1.2.3/8"])
def test_address_in_a_slice_range_is_refused(address: str) -> None:
    with pytest.raises(NotPermitted, match=r"range 10\.56\.0\.0/16 of network 'default' overlap"):
        chosen_anywhere(address)


def test_two_rails_that_are_kept_apart_may_have_one_prefix() -> None:
    chosen = chosen_anywhere("10.61.1.5/24,10.61.1.6/24", 2)

    assert chosen.static == (ip_interface("10.61.1.5/24"), ip_interface("10.61.1.6/24"))


def test_two_rails_that_are_not_kept_apart_cannot_have_one_prefix() -> None:
    network = Network("apart", ipam=StaticIpam(), routing="none")
    networks = Networks({"apart": network}, {"*": Limit(("apart",), static=True)})
    annotations = {NETWORK_ANNOTATION: "apart", ADDRESS_ANNOTATION: "10.61.1.5/24,10.61.1.6/24"}

    with pytest.raises(Misconfigured, match=r"cannot have the same prefix, .* networks\.apart\.routing to auto"):
        networks.choose("team", annotations, 2)


@pytest.mark.parametrize(
    "network", ["Verbs", "verbs ", " verbs", "verbs\n", "verbs\0", "v\u0435rbs", "*", "", "default,verbs"]
)
def test_name_with_another_spelling_is_another_network(network: str) -> None:
    with pytest.raises(NotPermitted, match="may not use network"):
        chosen("team-a", network=network)


@pytest.mark.parametrize("key", ["Railnet.io/network", "railnet.io/network ", "railnet.io/networks", "network"])
def test_annotation_with_another_spelling_is_ignored(key: str) -> None:
    assert NETWORKS.choose("anywhere", {key: "verbs"}, 1) == ChosenNetwork(DEFAULT)


POOLS = Networks(limits={"*": Limit(pools=("rdma/a",)), "team-b": Limit(pools=("rdma/a", "rdma/b")), "open": Limit()})


@pytest.mark.parametrize(
    ("namespace", "resources"), [("x", {"rdma/a"}), ("team-b", {"rdma/a", "rdma/b"}), ("open", {"rdma/z"})]
)
def test_namespace_may_have_the_pools_of_its_limit(namespace: str, resources: set[str]) -> None:
    POOLS.permit(namespace, resources)


def test_pools_outside_the_limit_are_refused_even_with_an_allowed_one() -> None:
    with pytest.raises(NotPermitted, match=r"'x' may not have rdma/b, rdma/c; 'limits' lets them have: rdma/a$"):
        POOLS.permit("x", {"rdma/a", "rdma/c", "rdma/b"})


STAYING = Networks(
    {
        "default": DEFAULT,
        "anywhere": Network("anywhere", ipam=StaticIpam()),
        "one-rail": Network("one-rail", ipam=StickyIpam(ip_network("10.57.0.0/16"))),
        "rails": Network("rails", ipam=StickyIpam(ip_network("10.58.0.0/16"), 3)),
    },
    {
        "*": Limit(("default", "one-rail")),
        "team-a": Limit(("default", "anywhere", "rails", "one-rail"), static=True),
        "none": Limit(("default",)),
    },
)


def staying(
    namespace: str = "ml", ips: str | None = None, network: str | None = None, rails: int = 1, sticky: str = "true"
) -> ChosenNetwork:
    annotations = {STICKY_ANNOTATION: sticky, NETWORK_ANNOTATION: network, ADDRESS_ANNOTATION: ips}
    return STAYING.choose(namespace, {key: text for key, text in annotations.items() if text is not None}, rails)


def test_pod_with_sticky_addresses_waits_until_they_are_written() -> None:
    waiting, given = staying(), staying(ips="10.57.0.9/16")

    assert (waiting.network.name, waiting.static, waiting.waits) == ("one-rail", (), True)
    assert (given.network.name, given.static, given.waits) == ("one-rail", (ip_interface("10.57.0.9/16"),), False)


def test_first_sticky_network_of_the_limit_is_chosen_unless_the_pod_names_one() -> None:
    assert staying("team-a").network.name == "rails"
    assert staying("team-a", network="one-rail").network.name == "one-rail"
    assert staying(sticky="false").network is DEFAULT


def test_each_rail_has_an_address_in_its_part_of_the_range() -> None:
    ips = "10.58.0.9/18,10.58.64.9/18,10.58.128.9/18"

    assert staying("team-a", ips, rails=3).static == tuple(map(ip_interface, ips.split(",")))


@pytest.mark.parametrize(
    ("arguments", "kind", "words"),
    [
        ({"sticky": "yes"}, Misconfigured, 'railnet.io/sticky is \'yes\'; it should be "true" or "false"'),
        ({"namespace": "none"}, Misconfigured, "pods of namespace 'none' may use no network with addresses that stay"),
        ({"network": "default"}, Misconfigured, "network 'default' has no addresses that stay with a rank"),
        ({"network": "one-rail", "sticky": "false"}, Misconfigured, "annotate the pod with railnet.io/sticky"),
        ({"network": "rails"}, NotPermitted, "may not use network 'rails'"),
        ({"rails": 2}, Misconfigured, "the pod has 2 VFs, and network 'one-rail' has addresses for 1 of each pod"),
        ({"ips": "10.57.0.9/24"}, NotPermitted, "is not an address in 10.57.0.0/16: only railnet-controllers writes"),
        ({"ips": "10.58.0.9/16"}, NotPermitted, "which is not in the network's range"),
        ({"ips": "10.57.255.255/16"}, Misconfigured, "is not a host's address"),
        (
            {"ips": "10.58.64.9/18,10.58.0.9/18", "namespace": "team-a", "rails": 2},
            NotPermitted,
            "is not an address in 10.58.0.0/18",
        ),
        (
            {"ips": "10.57.3.9/24", "network": "anywhere", "namespace": "team-a", "sticky": "false"},
            NotPermitted,
            "range 10.57.0.0/16 of network 'one-rail' overlap; the controllers assign those addresses",
        ),
    ],
)
def test_refused_sticky_addresses_are_named(arguments: dict[str, Any], kind: type[Exception], words: str) -> None:
    with pytest.raises(kind) as raised:
        staying(**arguments)

    assert words in str(raised.value)
