"""Networks that pods may have as net1 … netN, and which of them a pod's namespace lets it choose. Pure.

The node obeys them and the admission webhook checks pods against them, so both read the same types.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Network, ip_interface
from typing import Any, Literal

from vf.errors import Misconfigured, NotPermitted
from vf.slice import IpNetwork
from vf.step import IpInterface

DEFAULT = "default"
EVERYWHERE = "*"  # the namespace whose limit stands for all that have none of their own
NETWORK_ANNOTATION = "railnet.io/network"
ADDRESS_ANNOTATION = "railnet.io/net1-ip"

_RANGE = IPv4Network("10.56.0.0/16")
_ADDRESSES_AT_ONCE = 256  # more VFs than any node has on all its PFs for one pod; bounds what a pod can make us parse
_PARTITION = 0x7FFF  # a PKey without its membership bit: InfiniBand Architecture Specification volume 1, 10.9
_FULL_MEMBER = 0x8000


@dataclass(frozen=True, slots=True)
class SliceIpam:
    """Addresses computed from the node's flannel subnet; `range` is split among `rails`, None: as many as the node has."""

    range: IpNetwork = _RANGE
    rails: int | None = None


@dataclass(frozen=True, slots=True)
class NoIpam:
    """No addresses: InfiniBand verbs need none."""


@dataclass(frozen=True, slots=True)
class StaticIpam:
    """Addresses as the pod's annotation says, all within `range` where there is one."""

    range: IpNetwork | None = None


@dataclass(frozen=True, slots=True)
class PluginIpam:
    """Addresses from a CNI IPAM plugin; `conf` is the `ipam` object it is given, its `type` included."""

    conf: dict[str, Any] = field(hash=False)


Ipam = SliceIpam | NoIpam | StaticIpam | PluginIpam


@dataclass(frozen=True, slots=True)
class Network:
    """One network: MTU in bytes or the PF's; seconds a port may take; the partition its ports must be in; addresses."""

    name: str = DEFAULT
    mtu: int | Literal["pf"] = "pf"
    wait: float = 5.0
    pkey: int | None = None
    ipam: Ipam = SliceIpam()


@dataclass(frozen=True, slots=True)
class Limit:
    """What the pods of a namespace may ask for."""

    networks: tuple[str, ...] = (DEFAULT,)
    static: bool = False


@dataclass(frozen=True, slots=True)
class Chosen:
    """A pod's network, and the addresses that it named itself, in rail order."""

    network: Network
    static: tuple[IpInterface, ...] = ()


@dataclass(frozen=True, slots=True)
class Networks:
    """All networks of a node by name, and each namespace's limit."""

    by_name: Mapping[str, Network] = field(default_factory=lambda: {DEFAULT: Network()}, hash=False)
    limits: Mapping[str, Limit] = field(default_factory=lambda: {EVERYWHERE: Limit()}, hash=False)

    def __iter__(self) -> Iterator[Network]:
        """Give every network."""
        return iter(self.by_name.values())

    def choose(self, namespace: str, annotations: Mapping[str, str], rails: int) -> Chosen:
        """Give the network of a pod with `rails` VFs, as its annotations say and its namespace's limit lets it.

        Raises:
            NotPermitted: its namespace may not use that network, or name addresses.
            Misconfigured: there is no such network; the annotation with addresses is malformed, is missing where the
                network has no others, or is there where the network has its own.
        """
        name = annotations.get(NETWORK_ANNOTATION, DEFAULT)
        limit = self.limits.get(namespace, self.limits.get(EVERYWHERE, Limit()))
        if name not in limit.networks:
            allowed = ", ".join(limit.networks) or "none"
            raise NotPermitted(
                f"pods of namespace {namespace!r} may not use network {name!r:.80}; 'limits' lets them use: {allowed}"
            )
        if name not in self.by_name:
            raise Misconfigured(
                f"{NETWORK_ANNOTATION} is {name!r:.80}; this node's networks are: {', '.join(sorted(self.by_name))}"
            )
        network = self.by_name[name]
        return Chosen(network, _static(network, limit, namespace, annotations.get(ADDRESS_ANNOTATION), rails))


def lacks(pkey: int, table: tuple[int, ...]) -> str | None:
    """Tell why a port with these PKeys cannot use partition `pkey`; None if it can.

    The highest bit says that a port is a full member. Two limited members do not hear each other, so a network whose
    PKey has the bit needs it of the port (the same section).
    """
    members = [entry for entry in table if entry & _PARTITION == pkey & _PARTITION]
    if not members:
        return f"its port is in the partitions {', '.join(f'0x{entry:04x}' for entry in table) or 'none'}"
    if pkey & _FULL_MEMBER and not any(entry & _FULL_MEMBER for entry in members):
        return f"its port is only a limited member of it (0x{members[0]:04x})"
    return None


def _static(
    network: Network, limit: Limit, namespace: str, annotation: str | None, rails: int
) -> tuple[IpInterface, ...]:
    if annotation is None:
        if isinstance(network.ipam, StaticIpam):
            raise Misconfigured(
                f"network {network.name!r} has static addresses, and the pod names none: "
                f"annotate it with {ADDRESS_ANNOTATION}: <address>/<prefix length>, one for each of its {rails} VFs"
            )
        return ()
    if not limit.static:
        raise NotPermitted(
            f"pods of namespace {namespace!r} may not name addresses ({ADDRESS_ANNOTATION}); "
            "'static: true' in its limit would let them"
        )
    if not isinstance(network.ipam, StaticIpam):
        raise Misconfigured(
            f"{ADDRESS_ANNOTATION} is set, but network {network.name!r} gives addresses itself; "
            f"choose one whose ipam is static by {NETWORK_ANNOTATION}"
        )
    return _parsed(annotation, network.ipam.range, rails)


def _parsed(annotation: str, range_: IpNetwork | None, rails: int) -> tuple[IpInterface, ...]:
    texts = [text.strip() for text in annotation.split(",", _ADDRESSES_AT_ONCE)]
    if len(texts) != rails:
        raise Misconfigured(f"{ADDRESS_ANNOTATION} names {len(texts)} addresses, but the pod has {rails} VFs")
    addresses = tuple(_address(text) for text in texts)
    if len({address.ip for address in addresses}) != rails:
        raise Misconfigured(f"{ADDRESS_ANNOTATION} names an address twice")
    for address in addresses:
        if range_ is not None and address.ip not in range_:
            raise NotPermitted(f"{ADDRESS_ANNOTATION} names {address.ip}, which is not in the network's range {range_}")
    return addresses


def _address(text: str) -> IpInterface:
    try:
        if "/" not in text:
            raise ValueError(f"{text!r:.80} has no prefix length")
        if "%" in text:  # a zone is the node's own, and one address with two zones would pass for two addresses
            raise ValueError(f"{text!r:.80} names a zone")
        address = ip_interface(text)
    except ValueError as error:
        raise Misconfigured(f"{ADDRESS_ANNOTATION}: {error!s:.160}; it should be like 10.60.0.5/24") from None
    network = address.network
    # IPv6 has no broadcast address; its first is that of any router (RFC 4291, 2.6.1). IPv4 has neither in a /31 (RFC 3021).
    last = network.broadcast_address if address.version == 4 else None  # noqa: PLR2004 - IPv4
    ends = (network.network_address, last) if network.num_addresses > 2 else ()  # noqa: PLR2004
    if address.ip in ends or address.ip.is_multicast or address.ip.is_loopback or address.ip.is_unspecified:
        raise Misconfigured(f"{ADDRESS_ANNOTATION} names {address}, which is no address of a host")
    return address
