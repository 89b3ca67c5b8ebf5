"""Networks that pods may have as net1 … netN, and the limits of namespaces: what their pods may choose. Pure.

The node enforces them, and the admission webhook checks pods against them. Both use these types.
"""

from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Address, ip_interface, ip_network
from itertools import combinations, islice
from typing import Any, Literal

from railnet.errors import Misconfigured, NotPermitted
from railnet.vf.address_slice import IpAddress, IpNetwork
from railnet.vf.steps import IpInterface

DEFAULT = "default"
EVERYWHERE = "*"  # the key of the limit for all namespaces that have none of their own
NETWORK_ANNOTATION = "railnet.io/network"
ADDRESS_ANNOTATION = "railnet.io/net1-ip"
STICKY_ANNOTATION = "railnet.io/sticky"

Routing = Literal["auto", "none"]

_RANGE = IPv4Network("10.56.0.0/16")
_THIS_NETWORK = IPv4Network("0.0.0.0/8")  # RFC 1122, 3.2.1.3
_ADDRESSES_AT_ONCE = 256  # more VFs than one pod can have on any node; it bounds the parsing of a pod's annotation
# Where a plugin whose range is that of the whole cluster names it: k8snetworkplumbingwg/whereabouts, doc/extended-configuration.md. Of other plugins, such as
# host-local, each node has its own configuration.
_LISTS_OF_RANGES = "ipRanges"
_PARTITION = 0x7FFF  # a PKey without its membership bit: InfiniBand Architecture Specification volume 1, 10.9
_FULL_MEMBER = 0x8000


@dataclass(frozen=True, slots=True)
class SliceIpam:
    """Addresses computed from the node's flannel subnet. `range` is split among `rails`; None means all rails of the node."""

    range: IpNetwork = _RANGE
    rails: int | None = None


@dataclass(frozen=True, slots=True)
class NoIpam:
    """No addresses: InfiniBand verbs need none."""


@dataclass(frozen=True, slots=True)
class StaticIpam:
    """Addresses from the pod's annotation, all within `range` if it is set."""

    range: IpNetwork | None = None


@dataclass(frozen=True, slots=True)
class StickyIpam:
    """Addresses that stay with a pod's rank. The controllers choose them, and write them into the pod's annotation.

    `range` is split among `rails`, so that two rails of a pod have two prefixes: a pod has as many VFs at most.
    """

    range: IpNetwork
    rails: int = 1

    def parts(self) -> tuple[IpNetwork, ...]:
        """Return the part of the range for each rail.

        Raises:
            ValueError: the range is too small.
        """
        return _split(self.range, self.rails)


@dataclass(frozen=True, slots=True)
class PluginIpam:
    """Addresses from a CNI IPAM plugin. `conf` is the plugin's `ipam` object, with its `type`."""

    conf: dict[str, Any] = field(hash=False)


NetworkIpam = SliceIpam | NoIpam | StaticIpam | StickyIpam | PluginIpam


@dataclass(frozen=True, slots=True)
class Network:
    """One network. `mtu` is in bytes, or 'pf' for the PF's MTU.

    `wait` is the number of seconds within which a port must become active. `pkey` is the partition that its ports must be in.
    `routing` says whether several rails of a pod are kept apart: auto, they are; none, the pod has to do that.
    """

    name: str = DEFAULT
    mtu: int | Literal["pf"] = "pf"
    wait: float = 5.0
    pkey: int | None = None
    ipam: NetworkIpam = SliceIpam()
    routing: Routing = "auto"


@dataclass(frozen=True, slots=True)
class Limit:
    """The networks, static addresses and pools that the pods of a namespace may have. `pools` are resources, None means all."""

    networks: tuple[str, ...] = (DEFAULT,)
    static: bool = False
    pools: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class ChosenNetwork:
    """The network that a pod gets, and the static addresses from its annotation in rail order."""

    network: Network
    static: tuple[IpInterface, ...] = ()

    @property
    def waits(self) -> bool:
        """Return whether the controllers have not written the pod's addresses yet."""
        return isinstance(self.network.ipam, StickyIpam) and not self.static


@dataclass(frozen=True, slots=True)
class Networks:
    """All networks of a node by name, and each namespace's limit."""

    by_name: Mapping[str, Network] = field(default_factory=lambda: {DEFAULT: Network()}, hash=False)
    limits: Mapping[str, Limit] = field(default_factory=lambda: {EVERYWHERE: Limit()}, hash=False)

    def __iter__(self) -> Iterator[Network]:
        """Yield every network."""
        return iter(self.by_name.values())

    def permit(self, namespace: str, resources: Collection[str]) -> None:
        """Check that pods of a namespace may have devices of these resources.

        Raises:
            NotPermitted: the namespace's limit does not allow one of them.
        """
        pools = self._limit(namespace).pools
        refused = [] if pools is None else sorted(set(resources) - set(pools))
        if refused:
            raise NotPermitted(
                f"pods of namespace {namespace!r:.80} may not have {', '.join(refused)}; "
                f"'limits' lets them have: {', '.join(pools or ()) or 'none'}"
            )

    def check_reported(self, namespace: str, name: str, address: IpAddress) -> None:
        """Check that a pod of a namespace may have an address on a network, where a person may have written both.

        An address of a network with a known range must be in it. On a network without one, an address may be any that no other network has,
        but only where the namespace's limit names the network.

        Raises:
            Misconfigured: there is no such network.
            NotPermitted: the address is not one of this network's, or the namespace may not use the network.
        """
        network = self.by_name.get(name)
        if network is None:
            raise Misconfigured(
                f"network {name!r:.80} is not configured; have the administrator add it to networks of node.configuration"
            )
        ranges = known_ranges(network.ipam)
        if ranges is None:
            if name not in self._limit(namespace).networks:
                raise NotPermitted(f"pods of namespace {namespace!r:.80} may not use network {name!r:.80}")
            for other in self:
                if any(address in range_ for range_ in known_ranges(other.ipam) or ()):
                    raise NotPermitted(f"address {address} is in the range of network {other.name!r}, not in {name!r}")
        elif not any(address in range_ for range_ in ranges):
            words = ", ".join(map(str, ranges)) or "none"
            raise NotPermitted(f"address {address} is in no range of network {name!r}, which has: {words}")

    def _limit(self, namespace: str) -> Limit:
        return self.limits.get(namespace, self.limits.get(EVERYWHERE, Limit()))

    def choose(self, namespace: str, annotations: Mapping[str, str], rails: int) -> ChosenNetwork:
        """Return the network that a pod with `rails` VFs requests by its annotations, if its namespace's limit allows it.

        Raises:
            NotPermitted: the limit does not allow that network, or static addresses; or an address is outside the network's range,
                or its prefix overlaps a range of which the nodes assign the addresses.
            Misconfigured: there is no such network; or the annotation with addresses is malformed, is missing for a network
                with static addresses, or is present for any other network, except one with addresses that stay with a rank; or
                the pod asks for such addresses and not for such a network, or the other way round.
        """
        limit, sticky = self._limit(namespace), is_sticky(annotations)
        name = annotations.get(NETWORK_ANNOTATION)
        if name is None:
            name = self._sticky(namespace, limit) if sticky else DEFAULT
        if name not in limit.networks:
            allowed = ", ".join(limit.networks) or "none"
            raise NotPermitted(
                f"pods of namespace {namespace!r:.80} may not use network {name!r:.80}; 'limits' lets them use: {allowed}"
            )
        if name not in self.by_name:
            raise Misconfigured(
                f"{NETWORK_ANNOTATION} is {name!r:.80}; this node's networks are: {', '.join(sorted(self.by_name))}"
            )
        network = self.by_name[name]
        _check_is_sticky(network, sticky=sticky)
        static = _static(network, limit, namespace, annotations.get(ADDRESS_ANNOTATION), rails)
        for address in static:
            self._check_is_of_no_other(network, address)
        return ChosenNetwork(network, static)

    def _sticky(self, namespace: str, limit: Limit) -> str:
        """Return the first network with addresses that stay with a rank which the limit allows."""
        for name in limit.networks:
            if name in self.by_name and isinstance(self.by_name[name].ipam, StickyIpam):
                return name
        raise Misconfigured(
            f"{STICKY_ANNOTATION} is true, but pods of namespace {namespace!r:.80} may use no network with addresses that stay with a "
            "rank; have the administrator configure one, with an ipam of type sticky, and list it in 'limits'"
        )

    def _check_is_of_no_other(self, network: Network, address: IpInterface) -> None:
        for other in self:
            if other is network or not isinstance(other.ipam, SliceIpam | StickyIpam):
                continue
            if address.network.overlaps(other.ipam.range):
                assign = "the nodes assign" if isinstance(other.ipam, SliceIpam) else "the controllers assign"
                raise NotPermitted(
                    f"{ADDRESS_ANNOTATION} names {address}, whose prefix and range {other.ipam.range} of network "
                    f"{other.name!r} overlap; {assign} those addresses"
                )


def known_ranges(ipam: NetworkIpam) -> tuple[IpNetwork, ...] | None:
    """Return the ranges of which a network's addresses are; None if the configuration does not say them."""
    match ipam:
        case NoIpam():
            return ()
        case SliceIpam() | StickyIpam():
            return (ipam.range,)
        case StaticIpam():
            return None if ipam.range is None else (ipam.range,)
        case PluginIpam():
            return tuple(_ranges_of_plugin(ipam.conf)) or None


def is_sticky(annotations: Mapping[str, str]) -> bool:
    """Return whether a pod asks for addresses that stay with its rank.

    Raises:
        Misconfigured: the annotation is neither "true" nor "false".
    """
    text = annotations.get(STICKY_ANNOTATION, "false")
    if text not in ("true", "false"):
        raise Misconfigured(f'{STICKY_ANNOTATION} is {text!r:.80}; it should be "true" or "false"')
    return text == "true"


@lru_cache(maxsize=16)  # the controllers ask for each of ten thousand pods
def _split(range_: IpNetwork, rails: int) -> tuple[IpNetwork, ...]:
    return tuple(islice(range_.subnets(prefixlen_diff=(rails - 1).bit_length()), rails))


def _ranges_of_plugin(conf: Mapping[str, Any]) -> Iterator[IpNetwork]:
    """Yield the ranges of the whole cluster that the configuration of an IPAM plugin names.

    One may be `10.60.0.10-10.60.0.20/24`, of which the network is what follows the dash.
    """
    lists = conf.get(_LISTS_OF_RANGES)
    for entry in (conf, *(lists if isinstance(lists, list) else ())):
        text = entry.get("range") if isinstance(entry, Mapping) else None
        if isinstance(text, str):
            with suppress(ValueError):
                yield ip_network(text.rpartition("-")[2].strip(), strict=False)


def why_not_in_partition(pkey: int, table: tuple[int, ...]) -> str | None:
    """Return why a port with these PKeys cannot use partition `pkey`; None if it can.

    A PKey's highest bit means full membership. Two limited members cannot communicate. So a network whose PKey has the bit
    needs a port that is a full member (the same section).
    """
    members = [entry for entry in table if entry & _PARTITION == pkey & _PARTITION]
    if not members:
        return f"its port is in the partitions {', '.join(f'0x{entry:04x}' for entry in table) or 'none'}"
    if pkey & _FULL_MEMBER and not any(entry & _FULL_MEMBER for entry in members):
        return f"its port is only a limited member of it (0x{members[0]:04x})"
    return None


def _check_is_sticky(network: Network, *, sticky: bool) -> None:
    if sticky and not isinstance(network.ipam, StickyIpam):
        raise Misconfigured(
            f"{STICKY_ANNOTATION} is true, but network {network.name!r} has no addresses that stay with a rank; "
            f"remove one of the annotations {STICKY_ANNOTATION} and {NETWORK_ANNOTATION}"
        )
    if not sticky and isinstance(network.ipam, StickyIpam):
        raise Misconfigured(
            f"network {network.name!r} has only addresses that stay with a rank; annotate the pod with "
            f'{STICKY_ANNOTATION}: "true", or choose another network by {NETWORK_ANNOTATION}'
        )


def _static(
    network: Network, limit: Limit, namespace: str, annotation: str | None, rails: int
) -> tuple[IpInterface, ...]:
    if isinstance(network.ipam, StickyIpam):
        return _assigned(network.name, network.ipam, annotation, rails)
    if annotation is None:
        if isinstance(network.ipam, StaticIpam):
            raise Misconfigured(
                f"network {network.name!r} has static addresses, and the pod names none: "
                f"annotate it with {ADDRESS_ANNOTATION}: <address>/<prefix length>, one for each of its {rails} VFs"
            )
        return ()
    if not limit.static:
        raise NotPermitted(
            f"pods of namespace {namespace!r:.80} may not name addresses ({ADDRESS_ANNOTATION}); "
            "'static: true' in its limit allows it"
        )
    if not isinstance(network.ipam, StaticIpam):
        raise Misconfigured(
            f"{ADDRESS_ANNOTATION} is set, but network {network.name!r} does not use static addresses; "
            f"remove the annotation, or choose a network with static ipam by {NETWORK_ANNOTATION}"
        )
    addresses = _parsed(annotation, network.ipam.range, rails)
    if network.routing == "none":
        _check_have_own_prefixes(network.name, addresses)
    return addresses


def _assigned(name: str, ipam: StickyIpam, annotation: str | None, rails: int) -> tuple[IpInterface, ...]:
    """Return what the controllers have written; anyone with the right to change the pod may have written it, too."""
    if rails > ipam.rails:
        raise Misconfigured(
            f"the pod has {rails} VFs, and network {name!r} has addresses for {ipam.rails} of each pod; "
            f"have the administrator raise networks.{name}.ipam.rails"
        )
    if annotation is None:
        return ()
    addresses = _parsed(annotation, ipam.range, rails)
    for address, part in zip(addresses, ipam.parts(), strict=False):
        if address.network != part:
            raise NotPermitted(
                f"{ADDRESS_ANNOTATION} names {address}, which is not an address in {part}: only railnet-controllers writes "
                f"the addresses of network {name!r}; remove the annotation"
            )
    return addresses


def _parsed(annotation: str, range_: IpNetwork | None, rails: int) -> tuple[IpInterface, ...]:
    texts = [text.strip() for text in annotation.split(",", _ADDRESSES_AT_ONCE)]
    if len(texts) != rails:
        raise Misconfigured(f"{ADDRESS_ANNOTATION} names {len(texts)} addresses, but the pod has {rails} VFs")
    addresses = tuple(_address(text) for text in texts)
    if len({address.ip for address in addresses}) != rails:
        raise Misconfigured(f"{ADDRESS_ANNOTATION} names an address twice")
    if range_ is not None:
        for address in addresses:
            _check_is_in(range_, address)
    return addresses


def _check_have_own_prefixes(name: str, addresses: tuple[IpInterface, ...]) -> None:
    for address, other in combinations(addresses, 2):
        if address.network.overlaps(other.network):
            raise Misconfigured(
                f"{ADDRESS_ANNOTATION} names {address} and {other}: two links of a pod cannot have the same prefix, "
                "since neighbours would be searched on the wrong link; use one prefix for each rail, or have the administrator set "
                f"networks.{name}.routing to auto"
            )


def _check_is_in(range_: IpNetwork, address: IpInterface) -> None:
    if address.ip not in range_:
        raise NotPermitted(f"{ADDRESS_ANNOTATION} names {address.ip}, which is not in the network's range {range_}")
    if address.network.prefixlen < range_.prefixlen:
        raise NotPermitted(
            f"{ADDRESS_ANNOTATION} names {address}, whose prefix is wider than the network's range {range_}"
        )
    if address.ip in _ends(range_):  # the pod's own prefix may be another one
        raise Misconfigured(f"{ADDRESS_ANNOTATION} names {address}, which is not a host's address in {range_}")


def _ends(network: IpNetwork) -> tuple[IpAddress, ...]:
    """Return the first and last address of a network, as far as no host may have them.

    IPv6 has no broadcast address; its first address is any router's (RFC 4291, 2.6.1). A /31 of IPv4 has neither (RFC 3021).
    """
    if network.num_addresses <= 2:  # noqa: PLR2004
        return ()
    if network.version == 4:  # noqa: PLR2004 - IPv4
        return (network.network_address, network.broadcast_address)
    return (network.network_address,)


def _address(text: str) -> IpInterface:
    try:
        if "/" not in text:
            raise ValueError(f"{text!r:.80} has no prefix length")
        if "%" in text:  # zones are local to a node, and one address with two zones would count as two addresses
            raise ValueError(f"{text!r:.80} names a zone")
        address = ip_interface(text)
    except ValueError as error:
        raise Misconfigured(f"{ADDRESS_ANNOTATION}: {error!s:.160}; it should be like 10.60.0.5/24") from None
    if address.ip in _ends(address.network) or _is_of_no_host(address.ip):
        raise Misconfigured(f"{ADDRESS_ANNOTATION} names {address}, which is not a host's address")
    return address


def _is_of_no_host(ip: IpAddress) -> bool:
    """Return whether an address can never be a host's: multicast, loopback, link-local, reserved, or an embedded IPv4 address."""
    if isinstance(ip, IPv6Address) and (ip.ipv4_mapped is not None or ip.sixtofour is not None):
        return True
    return (
        ip.is_multicast
        or ip.is_loopback
        or ip.is_unspecified
        or ip.is_link_local
        or ip.is_reserved
        or ip in _THIS_NETWORK
    )
