"""Links and addresses through rtnetlink, in one network namespace.

Links are addressed by ifindex: names change under udev's hands. No request asks for VF information (RTEXT_FILTER_VF):
affected kernels answer EMSGSIZE for an InfiniBand PF with 16 VFs or more.

Nearly every request waits for RTNL, which a move of another pod's VF holds for some 15 ms: so there are few of them.

Source: include/uapi/linux/rtnetlink.h, if_link.h, if_addr.h, whose names are in the comments.
"""

import fcntl
import socket
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from errno import ENODEV
from ipaddress import ip_interface
from typing import NamedTuple

from kernel.netlink.protocol import (
    CREATE,
    DUMP,
    EXCLUSIVE,
    REPLACE,
    Netlink,
    attributes,
    decode_attributes,
    opened,
    string,
    text,
    u32,
    understanding,
)
from vf.address_slice import IpAddress, IpNetwork
from vf.steps import IpInterface, Route

NEWLINK = 16  # RTM_NEWLINK, which makes no link without NLM_F_CREATE
_GETLINK, _NEWADDR, _GETADDR, _NEWROUTE = 18, 20, 22, 24  # RTM_*
_ADDRESS, _BROADCAST, _IFNAME, _MTU, _LINKINFO, _ALIAS, _NETNS_FD, _EXT_MASK, _PARENT = 1, 2, 3, 4, 18, 20, 28, 29, 56
_INFO_KIND = 1  # IFLA_INFO_KIND, in IFLA_LINKINFO
_SKIP_STATS = 1 << 3  # RTEXT_FILTER_SKIP_STATS
_IFA_ADDRESS, _IFA_LOCAL = 1, 2
_IFF_UP = 0x1  # include/uapi/linux/if.h
_IFINFOMSG = struct.Struct("=BxHiII")  # family, type, ifindex, flags, which flags to change
_IFADDRMSG = struct.Struct("=BBBBI")  # family, prefix length, flags, scope, ifindex
# family, lengths of destination and source, tos, table, protocol, scope, type, flags
_RTMSG = struct.Struct("=BBBBBBBBI")
_RTA_DST, _RTA_OIF, _RTA_GATEWAY = 1, 4, 5
_MAIN_TABLE, _STATIC, _UNIVERSE, _ON_LINK, _UNICAST = 254, 4, 0, 253, 1  # RT_TABLE_, RTPROT_, RT_SCOPE_*, RTN_
_SIOCGIFINDEX = 0x8933  # include/uapi/linux/sockios.h
_IFREQ_INDEX = struct.Struct("=16si20x")  # struct ifreq


class Link(NamedTuple):
    """A link. `alias` is a text that any program may set (IFLA_IFALIAS); it stays when the link changes name or namespace.

    `parent` is the PCI address of its device, None for virtual ones and before kernel 5.14 (00e77ed8e64d); `kind` is
    IFLA_INFO_KIND, such as veth or tun, None for most drivers' links.
    """

    ifindex: int
    ifname: str
    alias: str | None
    parent: str | None
    kind: str | None


class LinkFacts(NamedTuple):
    """What may change of a link: `hardware_type` is an ARPHRD_* of linux/if_arp.h, `mtu` in bytes, `up` is IFF_UP."""

    ifname: str
    hardware_type: int
    mtu: int
    up: bool


class Hardware(NamedTuple):
    """What sending on a link takes: `hardware_type` is as in `LinkFacts`, `flags` are IFF_*."""

    ifindex: int
    hardware_type: int
    flags: int
    address: bytes
    broadcast: bytes


@contextmanager
def links(netns_fd: int | None = None) -> Iterator["Links"]:
    """Open rtnetlink in a namespace, None for the calling thread's; closed at the end, for an open one pins the namespace."""
    with opened(socket.NETLINK_ROUTE, netns_fd) as route:
        yield Links(route)


class Links:
    """The links of one namespace. A failure is an OSError with the kernel's errno and what was asked of which link."""

    def __init__(self, route: socket.socket) -> None:
        self._socket = route
        self._route = Netlink(route)

    def listed(self) -> tuple[Link, ...]:
        """List the links of the namespace."""
        request = link_message(0) + attributes((_EXT_MASK, u32(_SKIP_STATS)))
        with understanding("list links"):
            return tuple(_link(answer) for answer in self._route.ask("list links", _GETLINK, request, DUMP))

    def ifindex(self, ifname: str) -> int | None:
        """Find a link by its name; None if there is none. Needs no RTNL, so it never waits."""
        try:
            answer = fcntl.ioctl(self._socket, _SIOCGIFINDEX, _IFREQ_INDEX.pack(ifname.encode(), 0))
        except OSError as error:
            if error.errno != ENODEV:
                raise
            return None
        found: int = _IFREQ_INDEX.unpack(answer)[1]
        return found

    def facts(self, ifindex: int) -> LinkFacts:
        """Read one link."""
        with self._one(ifindex) as (hardware_type, flags, found):
            mtu = int.from_bytes(found[_MTU], sys.byteorder)
            return LinkFacts(text(found[_IFNAME]), hardware_type, mtu, bool(flags & _IFF_UP))

    def hardware(self, ifindex: int) -> Hardware:
        """Read a link's hardware addresses."""
        with self._one(ifindex) as (hardware_type, flags, found):
            return Hardware(ifindex, hardware_type, flags, found.get(_ADDRESS, b""), found.get(_BROADCAST, b""))

    def addresses(self, ifindex: int) -> tuple[IpInterface, ...]:
        """List the addresses of a link with their prefix lengths."""
        asked = f"list addresses of link {ifindex}"
        with understanding(asked):
            request = _IFADDRMSG.pack(socket.AF_UNSPEC, 0, 0, 0, ifindex)
            answers = self._route.ask(asked, _GETADDR, request, DUMP)
            return tuple(_address(answer) for answer in answers if _IFADDRMSG.unpack_from(answer)[4] == ifindex)

    @contextmanager
    def _one(self, ifindex: int) -> Iterator[tuple[int, int, dict[int, bytes]]]:
        """Ask for a link; return its hardware type, its flags, and its attributes to be understood."""
        asked = f"read link {ifindex}"
        with understanding(asked):
            (answer,) = self._route.ask(asked, _GETLINK, link_message(ifindex))
            _, hardware_type, _, flags, _ = _IFINFOMSG.unpack_from(answer)
            yield hardware_type, flags, decode_attributes(answer[_IFINFOMSG.size :])

    def move(self, ifindex: int, netns_fd: int, ifname: str) -> None:
        """Move a link into another namespace under a new name, in one message: udev never sees it there under the old.

        The kernel takes the link down, drops its addresses and may give it another ifindex. It moves first and renames
        then: when the name is taken there, this fails and **the link has moved**, under its old name.

        Raises:
            OSError: EEXIST, the name is taken there; ENODEV, the link is gone.

        Source: IFLA_NET_NS_FD with IFLA_IFNAME, do_setlink() in net/core/rtnetlink.c.
        """
        moved = attributes((_NETNS_FD, u32(netns_fd)), (_IFNAME, string(ifname)))
        self._set(f"move link {ifindex} to another namespace as {ifname!r}", link_message(ifindex) + moved)

    def move_up(self, ifindex: int, netns_fd: int, ifname: str, mtu: int) -> None:
        """Move as `move`, and there give the link its MTU (bytes) and bring it up, all in the one message.

        Raises:
            OSError: as `move`; ERANGE or EINVAL, the MTU is above what the driver allows, and **the link has moved**.

        Source: the order of do_setlink(): namespace, MTU, name, flags.
        """
        moved = attributes((_NETNS_FD, u32(netns_fd)), (_MTU, u32(mtu)), (_IFNAME, string(ifname)))
        asked = f"move link {ifindex} to another namespace as {ifname!r} with MTU {mtu}"
        self._set(asked, link_message(ifindex, up=True) + moved)

    def rename(self, ifindex: int, ifname: str) -> None:
        """Rename a link, which must be down on kernels before 6.2 (bd039b5ea2a9, live renaming)."""
        asked = f"rename link {ifindex} to {ifname!r}"
        self._set(asked, link_message(ifindex, up=False))
        self._set(asked, link_message(ifindex) + attributes((_IFNAME, string(ifname))))

    def set_alias(self, ifindex: int, alias: str) -> None:
        """Write on a link; `ip link` shows it."""
        # Without a NUL, which the kernel would keep as a part of it.
        written = attributes((_ALIAS, alias.encode()))
        self._set(f"set alias {alias!r} on link {ifindex}", link_message(ifindex) + written)

    def add_address(self, ifindex: int, address: IpInterface) -> None:
        """Add an address with its on-link prefix; one that is there already is fine."""
        packed, prefix_length = address.ip.packed, address.network.prefixlen
        request = _IFADDRMSG.pack(_family(address), prefix_length, 0, 0, ifindex)
        request += attributes((_IFA_LOCAL, packed), (_IFA_ADDRESS, packed))
        self._route.ask(f"add {address} to link {ifindex}", _NEWADDR, request, CREATE | REPLACE)

    def add_route(self, ifindex: int, route: Route) -> None:
        """Add a route through a link; on-link without a gateway.

        Raises:
            OSError: EEXIST, there is such a route already, of any program; ENETUNREACH, the gateway is on no link.
        """
        destination, gateway = route
        scope = _ON_LINK if gateway is None else _UNIVERSE
        request = _RTMSG.pack(
            _family(destination), destination.prefixlen, 0, 0, _MAIN_TABLE, _STATIC, scope, _UNICAST, 0
        )
        request += attributes((_RTA_DST, destination.network_address.packed), (_RTA_OIF, u32(ifindex)))
        if gateway is not None:
            request += attributes((_RTA_GATEWAY, gateway.packed))
        via = "" if gateway is None else f" via {gateway}"
        self._route.ask(f"add route {destination}{via} to link {ifindex}", _NEWROUTE, request, CREATE | EXCLUSIVE)

    def set_up(self, ifindex: int) -> None:
        """Bring a link up."""
        self._set(f"set link {ifindex} up", link_message(ifindex, up=True))

    def _set(self, asked: str, request: bytes) -> None:
        self._route.ask(asked, NEWLINK, request)


def link_message(ifindex: int, *, up: bool | None = None) -> bytes:
    """Spell struct ifinfomsg, which begins every message about a link; `up` changes whether it is."""
    return _IFINFOMSG.pack(socket.AF_UNSPEC, 0, ifindex, _IFF_UP if up else 0, 0 if up is None else _IFF_UP)


def _link(message: bytes) -> Link:
    _, _, ifindex, _, _ = _IFINFOMSG.unpack_from(message)
    found = decode_attributes(message[_IFINFOMSG.size :])
    info = decode_attributes(found.get(_LINKINFO, b""))
    alias, parent, kind = (
        None if value is None else text(value)
        for value in (found.get(_ALIAS), found.get(_PARENT), info.get(_INFO_KIND))
    )
    return Link(ifindex, text(found[_IFNAME]), alias, parent, kind)


def _address(message: bytes) -> IpInterface:
    _, prefix_length, _, _, _ = _IFADDRMSG.unpack_from(message)
    found = decode_attributes(message[_IFADDRMSG.size :])
    # The address of a point-to-point link is the peer's, and the local one is told beside it.
    return ip_interface((found.get(_IFA_LOCAL, found[_IFA_ADDRESS]), prefix_length))


def _family(of: IpInterface | IpNetwork | IpAddress) -> int:
    return socket.AF_INET if of.version == 4 else socket.AF_INET6  # noqa: PLR2004 - IPv4
