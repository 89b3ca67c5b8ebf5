"""Rail addresses without a store: a node's slice of a range is computed from the subnet that flannel leased to the node."""

from collections.abc import Container, Iterator
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_interface, ip_network

from railnet.errors import Misconfigured, NoAddress
from railnet.vf.steps import IpInterface, Route

IpNetwork = IPv4Network | IPv6Network
IpAddress = IPv4Address | IPv6Address


@dataclass(frozen=True, slots=True)
class FlannelLease:
    """A node's flannel subnet, and the cluster network that contains it. Both have the same address family."""

    network: IpNetwork
    subnet: IpNetwork


@dataclass(frozen=True, slots=True)
class AddressSlice:
    """The addresses of one node on one rail: `part` of the rail's on-link `prefix`."""

    prefix: IpNetwork
    part: IpNetwork

    @property
    def capacity(self) -> int:
        """Return the number of usable addresses: all but the part's first and last."""
        return self.part.num_addresses - 2

    def addresses(self, preferred: int) -> Iterator[IpInterface]:
        """Yield every usable address once, from the `preferred`-th (counted from 0) on; after the last, continue with the first."""
        for step in range(self.capacity):
            host = self.part[1 + (preferred + step) % self.capacity]
            yield ip_interface(f"{host}/{self.prefix.prefixlen}")


@lru_cache(maxsize=1)  # each ADD has the text parsed, which changes only when flannel gets another lease
def parse_subnet_env(text: str) -> tuple[FlannelLease, ...]:
    """Parse flanneld's subnet.env: a lease for each address family in it.

    Raises:
        NoAddress: a line, network or subnet in it is malformed, or the network does not contain the subnet.
        Misconfigured: flannel has several networks of one family.
    """
    entries = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    pairs = [("FLANNEL_NETWORK", "FLANNEL_SUBNET"), ("FLANNEL_IPV6_NETWORK", "FLANNEL_IPV6_SUBNET")]
    leases = tuple(
        _lease(entries[network], entries[subnet])
        for network, subnet in pairs
        if entries.get(subnet) and network in entries
    )
    if not leases:
        raise NoAddress(
            "flannel's subnet.env has no FLANNEL_NETWORK and FLANNEL_SUBNET: is flanneld running on this node?"
        )
    return leases


def _lease(networks_text: str, subnet_text: str) -> FlannelLease:
    try:
        subnet = ip_interface(subnet_text).network
        networks = [ip_network(text.strip()) for text in networks_text.split(",")]
    except ValueError as error:
        raise NoAddress(f"flannel's subnet.env is malformed: {error!s:.200}") from None
    same_family = [network for network in networks if network.version == subnet.version]
    # subnet_of() refuses to compare two families
    network = next((network for network in same_family if subnet.subnet_of(network)), None)  # type: ignore[arg-type]
    if network is None:
        raise NoAddress(f"flannel's subnet {subnet} is in none of its networks {networks_text:.200}")
    if len(same_family) > 1:
        # Nodes of two networks may have the same bits below their network, so they would get the same slice.
        raise Misconfigured(
            f"flannel has several networks ({networks_text:.200}): a slice needs exactly one of each family"
        )
    return FlannelLease(network, subnet)


@lru_cache(maxsize=64)  # as above: more than the rails of all networks
def node_slice(range_: IpNetwork, rail: int, rails: int, leases: tuple[FlannelLease, ...]) -> AddressSlice:
    """Compute this node's slice of `range_` on one of `rails` rails.

    The range's prefix is followed by the rail's bits, then by the bits of flannel's subnet below its network, then by the host
    part. Two nodes differ in flannel's bits, two rails in the rail's bits. So no address is assigned twice.

    Raises:
        NoAddress: flannel leased no subnet of the range's family.
        Misconfigured: no bits remain for the host part; the message has the calculation.
    """
    lease = next((lease for lease in leases if lease.network.version == range_.version), None)
    if lease is None:
        raise NoAddress(f"flannel leased this node no IPv{range_.version} subnet, but {range_} needs one")
    rail_bits = (rails - 1).bit_length()
    node_bits = lease.subnet.prefixlen - lease.network.prefixlen
    used = range_.prefixlen + rail_bits + node_bits
    if range_.max_prefixlen - used < 2:  # noqa: PLR2004 - the first and last address of a part are never assigned
        raise Misconfigured(
            f"range {range_} is too small: {range_.prefixlen} bits of prefix + {rail_bits} for {rails} rails + {node_bits} for "
            f"flannel's /{lease.subnet.prefixlen} subnets in /{lease.network.prefixlen} leave {range_.max_prefixlen - used} bits for addresses"
        )
    prefix = _nth(range_, range_.prefixlen + rail_bits, rail)
    node = (int(lease.subnet.network_address) - int(lease.network.network_address)) >> (
        range_.max_prefixlen - lease.subnet.prefixlen
    )
    return AddressSlice(prefix, _nth(prefix, used, node))


def choose(slice_: AddressSlice, vf_index: int, taken: Container[IpAddress]) -> IpInterface:
    """Choose the address of a VF: always the same one, unless a live sandbox has it.

    A VF keeps its address as it keeps its GUID, so a neighbour's cache never leads to the wrong VF. `taken` holds addresses
    without a prefix length, because the prefix may have changed since they were assigned.

    Raises:
        NoAddress: every address is taken.
    """
    for address in slice_.addresses(vf_index):
        if address.ip not in taken:
            return address
    raise NoAddress(f"all {slice_.capacity} addresses of {slice_.part} are taken")


def route_to_other_rails(range_: IpNetwork, own: IpInterface) -> tuple[Route, ...]:
    """Return a route through the link with address `own` to the rails on which the sandbox has no link; none for a single rail.

    Two pods of a job with one VF each mostly have it on different rails. Within one fabric, neighbour discovery crosses
    rails, so this route reaches the other pod. If the rails are separate fabrics, the sender gets EHOSTUNREACH. Without the
    route, the packets would leave through eth0. The sandbox's own rails have a longer prefix, so this route does not affect them.
    """
    return () if own.network == range_ else (Route(range_, None),)


def _nth(network: IpNetwork, prefixlen: int, number: int) -> IpNetwork:
    base = int(network.network_address) + (number << (network.max_prefixlen - prefixlen))
    return type(network)((base, prefixlen))
