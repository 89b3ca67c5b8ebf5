"""Addresses that are given twice. Not collected until they are mended: then these belong into test_slice.py."""

from ipaddress import IPv4Network, ip_interface

from vf.slice import Slice, choose, node_slice, parse_subnet_env

NETWORKS = "FLANNEL_NETWORK=10.244.0.0/16,10.245.0.0/16\n"


def test_nodes_of_two_flannel_networks_have_different_slices() -> None:
    leases = [parse_subnet_env(f"{NETWORKS}FLANNEL_SUBNET={subnet}\n") for subnet in ("10.244.3.1/24", "10.245.3.1/24")]

    first, second = (node_slice(IPv4Network("10.56.0.0/16"), 0, 1, lease) for lease in leases)

    assert not first.part.overlaps(second.part)


def test_address_of_a_live_sandbox_is_not_given_again_when_the_prefix_changed() -> None:
    slice_ = Slice(IPv4Network("10.56.0.0/17"), IPv4Network("10.56.3.0/25"))

    assert choose(slice_, 0, {ip_interface("10.56.3.1/16")}).ip != ip_interface("10.56.3.1/16").ip
