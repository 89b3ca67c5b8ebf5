"""A pod's rails, as the annotation network-status of the Network Plumbing Working Group tells them.

Anyone who may change the pod may have written the annotation. It is read as a whole: an annotation that is no list of named networks counts as
absent, and so does one in which a field that is read here of a network of Railnet has another form than `railnet.apiserver.network_status`
writes. A field that is missing counts as empty.

Source: k8snetworkplumbingwg/multi-net-spec v1.3.
"""

import json
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from typing import Any, NamedTuple, TypeVar

ANNOTATION = "k8s.v1.cni.cncf.io/network-status"
OF_RAILNET = "railnet/"  # begins the names of Railnet's networks

# Of one pod; a hostile annotation has room for thousands of each. What Railnet writes of so many rails has a quarter of these characters.
_MOST_RAILS, _MOST_ADDRESSES, _MOST_CHARACTERS = 64, 16, 64 << 10
_HIGHEST_RAIL = 1023  # more than a node has cards
_NETWORK = re.compile(r"railnet/[a-z0-9][-.a-z0-9]{0,62}")
_LONGEST_NETWORK = len(OF_RAILNET) + 63
_INTERFACES = frozenset(f"net{number}" for number in range(1, 1000))
_BYTE = r"(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
# IPv4 addresses of whose first byte none is special: they are usable, and need no closer look.
_USABLE_IPV4 = re.compile(rf"(?!(?:0|127|169|22[4-9]|23[0-9])\.)(?:{_BYTE}\.){{3}}{_BYTE}")
_T = TypeVar("_T")


class PublishedRail(NamedTuple):
    """A rail of a pod.

    Attributes:
        network: the name of its network, with `railnet/`.
        interface: its name in the pod, such as `net1`.
        addresses: those that name one interface in the whole network: see `usable_address`.
        mac: its hardware address; empty without one.
        mtu: in bytes; 0 without one.
        rail: the number that Railnet gives it on its node; None if that is not told, as by a daemon before 0.5.0.
        vf: the PCI address of its VF; empty without one.
    """

    network: str
    interface: str
    addresses: tuple[str, ...] = ()
    mac: str = ""
    mtu: int = 0
    rail: int | None = None
    vf: str = ""


def rails_of_pod(pod: Mapping[str, Any]) -> tuple[PublishedRail, ...]:
    """Return the rails of a pod, in the order of net1, net2 and so on; none if the annotation is absent or has another form."""
    try:
        return rails((pod["metadata"].get("annotations") or {}).get(ANNOTATION) or "")
    except (KeyError, TypeError, AttributeError):
        return ()


def rails(annotation: str) -> tuple[PublishedRail, ...]:
    """Return the rails that an annotation tells, in the order of net1, net2 and so on; none if it has another form."""
    if not annotation or len(annotation) > _MOST_CHARACTERS:
        return ()
    try:
        elements = json.loads(annotation)
        named = [element for element in elements if element["name"].startswith(OF_RAILNET)]
        published = [_rail(element) for element in named[:_MOST_RAILS]]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return ()
    return tuple(sorted(published, key=_place))


def numbers_of(published: Iterable[PublishedRail]) -> frozenset[int]:
    """Return the numbers of rails that have one; those that no node has are left out."""
    return frozenset(rail.rail for rail in published if rail.rail is not None and rail.rail <= _HIGHEST_RAIL)


def usable_address(text: Any) -> str:
    """Return an address in its usual form; empty if it is none that names one interface in the whole network.

    Kubernetes refuses the others in an EndpointSlice, and with them the whole slice (kubernetes/pkg/apis/core/validation,
    ValidateEndpointIP).

    Raises:
        ValueError, TypeError: the text is no address.
    """
    if not isinstance(text, str):
        raise TypeError("an address is a string")
    if _USABLE_IPV4.fullmatch(text) is not None:
        return text
    ip = ip_address(text)
    strange = ip.is_unspecified or ip.is_loopback or ip.is_link_local or ip.is_multicast
    if isinstance(ip, IPv6Address):  # Go reads ::ffff:10.0.0.1 as an IPv4 address, and knows no scopes here
        strange = strange or ip.ipv4_mapped is not None or ip.scope_id is not None
    return "" if strange else str(ip)


def _rail(element: Mapping[str, Any]) -> PublishedRail:
    network, interface = element["name"], element["interface"]
    if interface not in _INTERFACES or len(network) > _LONGEST_NETWORK or not _is_network(network):
        raise ValueError("no network or no interface of Railnet")
    device_info = _field(element.get("device-info"), dict)
    pci = device_info and _field(device_info.get("pci"), dict)
    mtu, rail = _field(element.get("mtu"), int) or 0, _field(element.get("rail"), int)
    if mtu < 0 or (rail is not None and rail < 0):
        raise ValueError("a number is below 0")
    return PublishedRail(
        network,
        interface,
        tuple(filter(None, map(usable_address, (_field(element.get("ips"), list) or ())[:_MOST_ADDRESSES]))),
        _field(element.get("mac"), str) or "",
        mtu,
        rail,
        (pci and _field(pci.get("pci-address"), str)) or "",
    )


def _place(rail: PublishedRail) -> tuple[int, str]:
    return len(rail.interface), rail.interface


def _field(value: Any, kind: type[_T]) -> _T | None:
    """Return a field; None if it is missing or null.

    Raises:
        TypeError: it is of another type; True and False are no numbers.
    """
    if value is None or type(value) is kind:
        return value
    raise TypeError("a field is of another type")


@lru_cache(maxsize=256)  # a cluster has few networks; a longer name is refused before, so that none fills the memory
def _is_network(name: str) -> bool:
    return _NETWORK.fullmatch(name) is not None
