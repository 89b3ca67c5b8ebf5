"""A pod's rails, as the annotation network-status of the Network Plumbing Working Group tells them.

Anyone who may change the pod may have written the annotation. It is read as a whole: an annotation that is no list of named networks counts as
absent, and so does one in which a field that is read here of a network of Railnet has another form than `railnet.apiserver.network_status`
writes. A field that is missing counts as empty.

Source: k8snetworkplumbingwg/multi-net-spec v1.3.
"""

import json
import re
from collections.abc import Iterator, Mapping
from ipaddress import IPv4Address, IPv6Address, ip_address
from itertools import islice
from typing import Any, NamedTuple, TypeVar

ANNOTATION = "k8s.v1.cni.cncf.io/network-status"
OF_RAILNET = "railnet/"  # begins the names of Railnet's networks

_MOST_RAILS = 64  # of one pod; a hostile annotation has room for thousands
_NETWORK = re.compile(r"railnet/[a-z0-9][-.a-z0-9]{0,62}")
_INTERFACE = re.compile(r"net[1-9][0-9]{0,2}")
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
    addresses: tuple[IPv4Address | IPv6Address, ...] = ()
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
    try:
        published = list(islice(_rails(json.loads(annotation or "[]")), _MOST_RAILS))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return ()
    return tuple(sorted(published, key=lambda rail: (len(rail.interface), rail.interface)))


def usable_address(text: Any) -> IPv4Address | IPv6Address | None:
    """Return an address; None if it is none that names one interface in the whole network.

    Kubernetes refuses the others in an EndpointSlice, and with them the whole slice (kubernetes/pkg/apis/core/validation,
    ValidateEndpointIP).

    Raises:
        ValueError, TypeError: the text is no address.
    """
    if not isinstance(text, str):
        raise TypeError("an address is a string")
    ip = ip_address(text)
    strange = ip.is_unspecified or ip.is_loopback or ip.is_link_local or ip.is_multicast
    if isinstance(ip, IPv6Address):  # Go reads ::ffff:10.0.0.1 as an IPv4 address, and knows no scopes here
        strange = strange or ip.ipv4_mapped is not None or ip.scope_id is not None
    return None if strange else ip


def _rails(elements: list[dict[str, Any]]) -> Iterator[PublishedRail]:
    for element in elements:
        name = element["name"]
        if name.startswith(OF_RAILNET):
            yield _rail(name, element)


def _rail(network: str, element: Mapping[str, Any]) -> PublishedRail:
    interface = element["interface"]
    if _NETWORK.fullmatch(network) is None or _INTERFACE.fullmatch(interface) is None:
        raise ValueError("no network or no interface of Railnet")
    ips = _field(element, "ips", list) or ()
    device = _field(_field(element, "device-info", dict) or {}, "pci", dict) or {}
    return PublishedRail(
        network=network,
        interface=interface,
        addresses=tuple(address for address in map(usable_address, ips) if address is not None),
        mac=_field(element, "mac", str) or "",
        mtu=_number(element, "mtu") or 0,
        rail=_number(element, "rail"),
        vf=_field(device, "pci-address", str) or "",
    )


def _field(element: Mapping[str, Any], key: str, kind: type[_T]) -> _T | None:
    """Return a field; None if it is missing or null.

    Raises:
        TypeError: it is of another type; True and False are no numbers.
    """
    field = element.get(key)
    if field is None or type(field) is kind:
        return field
    raise TypeError(f"{key} is of another type")


def _number(element: Mapping[str, Any], key: str) -> int | None:
    """Return a number; None if it is missing or null.

    Raises:
        TypeError: it is of another type.
        ValueError: it is below 0.
    """
    number = _field(element, key, int)
    if number is not None and number < 0:
        raise ValueError(f"{key} is below 0")
    return number
