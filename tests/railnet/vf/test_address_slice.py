"""Addresses of a node's slice: the calculation, by examples and by properties."""

from ipaddress import IPv4Network, ip_interface, ip_network
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from railnet.errors import Misconfigured, NoAddress
from railnet.vf.address_slice import AddressSlice, FlannelLease, IpNetwork, choose, node_slice, parse_subnet_env

RANGE = IPv4Network("10.56.0.0/16")
FLANNEL = IPv4Network("10.244.0.0/16")
LEASE = FlannelLease(FLANNEL, IPv4Network("10.244.3.0/24"))
SUBNET_ENV = """\
FLANNEL_NETWORK=10.244.0.0/16
FLANNEL_SUBNET=10.244.3.1/24
FLANNEL_MTU=1450
FLANNEL_IPMASQ=true
"""


def slices(range_: IpNetwork, rails: int, nodes: int) -> list[AddressSlice]:
    """Return the slices of every rail on the first nodes."""
    leases = [FlannelLease(FLANNEL, subnet) for subnet in list(FLANNEL.subnets(new_prefix=24))[:nodes]]
    return [node_slice(range_, rail, rails, (lease,)) for lease in leases for rail in range(rails)]


@pytest.mark.parametrize(
    ("rail", "rails", "prefix", "part"),
    [
        (0, 1, "10.56.0.0/16", "10.56.3.0/24"),
        (0, 2, "10.56.0.0/17", "10.56.1.128/25"),
        (1, 2, "10.56.128.0/17", "10.56.129.128/25"),
        (2, 3, "10.56.128.0/18", "10.56.128.192/26"),
        (0, 8, "10.56.0.0/19", "10.56.0.96/27"),
        (7, 8, "10.56.224.0/19", "10.56.224.96/27"),
    ],
)
def test_node_slice_has_the_rails_bits_then_flannels_bits(rail: int, rails: int, prefix: str, part: str) -> None:
    assert node_slice(RANGE, rail, rails, (LEASE,)) == AddressSlice(IPv4Network(prefix), IPv4Network(part))


@pytest.mark.parametrize(
    ("network", "subnet", "part"),
    [
        ("10.244.0.0/16", "10.244.0.0/24", "10.56.0.0/24"),
        ("10.244.0.0/16", "10.244.255.0/24", "10.56.255.0/24"),
        ("10.240.0.0/12", "10.244.3.0/24", "10.56.64.48/28"),
        ("10.244.0.0/16", "10.244.128.0/17", "10.56.128.0/17"),
        ("10.244.3.0/24", "10.244.3.0/24", "10.56.0.0/16"),
    ],
    ids=["first node", "last node", "a larger network", "two nodes only", "one node only"],
)
def test_node_slice_depends_on_the_position_of_the_subnet_in_its_network(network: str, subnet: str, part: str) -> None:
    lease = FlannelLease(ip_network(network), ip_network(subnet))

    assert node_slice(RANGE, 0, 1, (lease,)).part == IPv4Network(part)


def test_node_slice_is_computed_for_ipv6() -> None:
    lease = FlannelLease(ip_network("fd00:10:244::/48"), ip_network("fd00:10:244:3::/64"))

    slice_ = node_slice(ip_network("fd56::/64"), 1, 2, (LEASE, lease))

    assert slice_ == AddressSlice(ip_network("fd56::8000:0:0:0/65"), ip_network("fd56::8001:8000:0:0/81"))


def test_node_slice_fails_when_flannel_leased_no_subnet_of_the_family() -> None:
    with pytest.raises(NoAddress, match="leased this node no IPv6 subnet, but fd56::/64 needs one"):
        node_slice(ip_network("fd56::/64"), 0, 1, (LEASE,))


def test_range_that_is_too_small_is_refused_with_the_calculation() -> None:
    with pytest.raises(Misconfigured) as raised:
        node_slice(IPv4Network("10.56.0.0/20"), 0, 8, (LEASE,))

    assert str(raised.value) == (
        "range 10.56.0.0/20 is too small: 20 bits of prefix + 3 for 8 rails + 8 for flannel's /24 subnets in /16 "
        "leave 1 bits for addresses"
    )


def test_smallest_node_slice_has_two_addresses() -> None:
    slice_ = node_slice(IPv4Network("10.56.0.0/22"), 0, 1, (LEASE,))

    assert list(slice_.addresses(0)) == [ip_interface("10.56.0.13/22"), ip_interface("10.56.0.14/22")]


@pytest.mark.slow
@given(st.integers(16, 18), st.integers(1, 8), st.integers(1, 256))
def test_slices_of_all_nodes_and_rails_are_in_the_range_and_do_not_overlap(bits: int, rails: int, nodes: int) -> None:
    range_ = IPv4Network(f"10.56.0.0/{bits}")

    parts = sorted(slice_.part for slice_ in slices(range_, rails, nodes))

    assert len(parts) == rails * nodes
    assert all(part.subnet_of(range_) for part in parts)
    assert all(one.broadcast_address < other.network_address for one, other in pairwise(parts))


@pytest.mark.slow
@given(st.integers(1, 8), st.integers(1, 256))
def test_nodes_share_a_rails_prefix_and_rails_have_different_prefixes(rails: int, nodes: int) -> None:
    found = slices(RANGE, rails, nodes)

    assert all(slice_.part.subnet_of(slice_.prefix) for slice_ in found)
    assert len({slice_.prefix for slice_ in found}) == rails


@given(st.integers(0, 7), st.integers(0, 400))
def test_slice_yields_every_address_once_except_its_first_and_last(rail: int, preferred: int) -> None:
    slice_ = node_slice(RANGE, rail, 8, (LEASE,))

    addresses = list(slice_.addresses(preferred))

    assert len(set(addresses)) == len(addresses) == slice_.capacity == slice_.part.num_addresses - 2
    assert {address.ip for address in addresses} == set(slice_.part) - {slice_.part[0], slice_.part[-1]}
    assert {address.network for address in addresses} == {slice_.prefix}


SMALL = AddressSlice(IPv4Network("10.56.0.0/16"), IPv4Network("10.56.3.0/29"))


@pytest.mark.parametrize(
    ("vf_index", "taken", "expected"),
    [
        (0, [], "10.56.3.1/16"),
        (5, [], "10.56.3.6/16"),
        (6, [], "10.56.3.1/16"),
        (0, ["10.56.3.1/16"], "10.56.3.2/16"),
        (5, ["10.56.3.6/16", "10.56.3.1/16"], "10.56.3.2/16"),
    ],
    ids=["first VF", "last VF", "more VFs than addresses", "taken", "taken up to the end"],
)
def test_choose_prefers_the_vfs_own_address(vf_index: int, taken: list[str], expected: str) -> None:
    assert choose(SMALL, vf_index, {ip_interface(address).ip for address in taken}) == ip_interface(expected)


def test_choose_fails_when_all_addresses_are_taken() -> None:
    with pytest.raises(NoAddress, match=r"all 6 addresses of 10\.56\.3\.0/29 are taken"):
        choose(SMALL, 2, {address.ip for address in SMALL.addresses(0)})


def test_subnet_env_is_parsed_to_a_lease() -> None:
    assert parse_subnet_env(SUBNET_ENV) == (LEASE,)


def test_subnet_env_is_parsed_to_a_lease_for_each_family() -> None:
    text = SUBNET_ENV + "FLANNEL_IPV6_NETWORK=fd00:10:244::/48\nFLANNEL_IPV6_SUBNET=fd00:10:244:3::1/64\n"

    assert parse_subnet_env(text) == (
        LEASE,
        FlannelLease(ip_network("fd00:10:244::/48"), ip_network("fd00:10:244:3::/64")),
    )


@pytest.mark.parametrize(
    "text",
    [
        SUBNET_ENV.replace("\n", "\r\n"),
        SUBNET_ENV.rstrip(),
        "# by flanneld\n\n" + SUBNET_ENV,
        "FLANNEL_SUBNET=10.244.3.1/24\nFLANNEL_NETWORK=10.244.0.0/16\n",
        "FLANNEL_NETWORK=fd00:10:244::/48,10.244.0.0/16\nFLANNEL_SUBNET=10.244.3.1/24\n",
        SUBNET_ENV + "FLANNEL_IPV6_SUBNET=\n",
    ],
    ids=["CRLF", "no end of line", "comment", "other order", "several networks", "empty other family"],
)
def test_subnet_env_is_parsed_in_every_usual_form(text: str) -> None:
    assert parse_subnet_env(text) == (LEASE,)


MALFORMED = {
    "empty": ("", "has no FLANNEL_NETWORK and FLANNEL_SUBNET"),
    "other keys": ("FLANNEL_MTU=1450\n", "has no FLANNEL_NETWORK and FLANNEL_SUBNET"),
    "no subnet yet": ("FLANNEL_NETWORK=10.244.0.0/16\n", "has no FLANNEL_NETWORK"),
    "no network": ("FLANNEL_SUBNET=10.244.3.1/24\n", "has no FLANNEL_NETWORK"),
    "empty network": ("FLANNEL_NETWORK=\nFLANNEL_SUBNET=10.244.3.1/24\n", "is malformed"),
    "cut off in the subnet": ("FLANNEL_NETWORK=10.244.0.0/16\nFLANNEL_SUBNET=10.244.", "is malformed"),
    "words": ("FLANNEL_NETWORK=10.244.0.0/16\nFLANNEL_SUBNET=none\n", "is malformed"),
    "prefix too long": ("FLANNEL_NETWORK=10.244.0.0/16\nFLANNEL_SUBNET=10.244.3.1/33\n", "is malformed"),
    "host bits in the network": ("FLANNEL_NETWORK=10.244.3.1/16\nFLANNEL_SUBNET=10.244.3.1/24\n", "is malformed"),
    "a subnet outside the network": (
        "FLANNEL_NETWORK=10.244.0.0/16\nFLANNEL_SUBNET=10.1.3.1/24\n",
        "is in none of its networks",
    ),
    "a subnet larger than the network": ("FLANNEL_NETWORK=10.244.3.0/24\nFLANNEL_SUBNET=10.244.3.1/16\n", "in none of"),
    "another family": ("FLANNEL_NETWORK=10.244.0.0/16\nFLANNEL_SUBNET=fd00::1/64\n", "is in none of its networks"),
}


@pytest.mark.parametrize(("text", "words"), MALFORMED.values(), ids=MALFORMED.keys())
def test_malformed_subnet_env_raises_no_address(text: str, words: str) -> None:
    with pytest.raises(NoAddress, match=words):
        parse_subnet_env(text)


@given(st.text() | st.from_regex(r"FLANNEL_NETWORK=[0-9./:,a-f]*\nFLANNEL_SUBNET=[0-9./:a-f]*", fullmatch=True))
def test_subnet_env_raises_only_no_address(text: str) -> None:
    try:
        leases = parse_subnet_env(text)
    except NoAddress:
        return
    assert leases


def test_several_flannel_networks_of_one_family_are_refused() -> None:
    with pytest.raises(Misconfigured, match="several networks"):
        parse_subnet_env("FLANNEL_NETWORK=10.244.0.0/16,10.245.0.0/16\nFLANNEL_SUBNET=10.245.3.1/24\n")


def test_address_of_a_live_sandbox_is_not_chosen_again_after_the_prefix_changed() -> None:
    slice_ = AddressSlice(IPv4Network("10.56.0.0/17"), IPv4Network("10.56.3.0/25"))
    taken = {ip_interface("10.56.3.1/16").ip}

    assert choose(slice_, 0, taken).ip not in taken
