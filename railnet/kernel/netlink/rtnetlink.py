"""Links, addresses and routes of one network namespace, by rtnetlink.

Links are addressed by ifindex, since udev may rename a link at any time. No request asks for VF information
(RTEXT_FILTER_VF): some kernels answer EMSGSIZE for an InfiniBand PF with 16 VFs or more.

Nearly every request waits for RTNL, the kernel's lock of its network configuration. The move of another pod's VF holds it
for some 15 ms, so the number of requests is kept small.

Source: include/uapi/linux/rtnetlink.h, if_link.h, if_addr.h, whose names are in the comments.
"""

import ctypes
import fcntl
import os
import socket
import struct
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from errno import ENODEV, EOPNOTSUPP
from ipaddress import ip_interface
from typing import NamedTuple, TypeVar

from railnet.kernel.netlink.protocol import (
    APPEND,
    CREATE,
    DUMP,
    EXCLUSIVE,
    REPLACE,
    Netlink,
    attributes,
    decode_attributes,
    decode_repeated,
    opened,
    string,
    text,
    u32,
    understanding,
)
from railnet.vf.address_slice import IpAddress, IpNetwork
from railnet.vf.steps import IpInterface, Ipv4Settings, Route

NEWLINK = 16  # RTM_NEWLINK: without NLM_F_CREATE it only changes an existing link
_DELLINK, _GETLINK, _NEWADDR, _GETADDR, _NEWROUTE = 17, 18, 20, 22, 24  # RTM_*
_NEWLINKPROP, _DELLINKPROP = 108, 109  # RTM_*, since kernel 5.5
# IFLA_*
ADDRESS, _BROADCAST, IFNAME, _MTU = 1, 2, 3, 4
_LINK, _LINKINFO, _ALIAS, _AF_SPEC, _NETNS_FD, _EXT_MASK, _LINK_NETNSID = 5, 18, 20, 26, 28, 29, 37
_INET_CONF = 1  # IFLA_INET_CONF, in IFLA_AF_SPEC's AF_INET
# IPV4_DEVCONF_* of include/uapi/linux/ip.h
_IPV4_DEVCONF = {"arp_ignore": 19, "arp_announce": 18, "rp_filter": 8}
PROP_LIST, ALT_IFNAME = 52, 53
PARENT = 56  # IFLA_PARENT_DEV_NAME
_NESTED = 1 << 15  # NLA_F_NESTED, which the kernel demands around alternative names
_ALTNAMES_BYTES = 32 << 10  # of one request: an attribute's length has 16 bits
_INFO_KIND = 1  # IFLA_INFO_KIND, in IFLA_LINKINFO
_SKIP_STATS = 1 << 3  # RTEXT_FILTER_SKIP_STATS
_IFA_ADDRESS, _IFA_LOCAL = 1, 2
IFF_UP = 0x1  # include/uapi/linux/if.h
IFINFOMSG = struct.Struct("=BxHiII")  # family, type, ifindex, flags, mask of the flags to change
_IFADDRMSG = struct.Struct("=BBBBI")  # family, prefix length, flags, scope, ifindex
# family, lengths of destination and source, tos, table, protocol, scope, type, flags
RTMSG = struct.Struct("=BBBBBBBBI")
RTA_DST, RTA_OIF, RTA_GATEWAY, RTA_TABLE = 1, 4, 5, 15
_MAIN_TABLE, _STATIC, _UNIVERSE, _ON_LINK, _UNICAST = 254, 4, 0, 253, 1  # RT_TABLE_, RTPROT_, RT_SCOPE_*, RTN_
_SIOCGIFINDEX = 0x8933  # include/uapi/linux/sockios.h
_IFREQ_INDEX = struct.Struct("=16si20x")  # struct ifreq
# include/uapi/linux/ethtool.h: struct ethtool_drvinfo begins with the command; bus_info has 32 bytes and a NUL at its end
_SIOCETHTOOL, _GDRVINFO = 0x8946, 3
_IFREQ_POINTER = struct.Struct("@16sP16x")
_DRVINFO_BYTES, _BUS_INFO = 196, slice(100, 132)

_Read = TypeVar("_Read")


class Link(NamedTuple):
    """A link. `alias` (IFLA_IFALIAS) is a text that any program may set. It stays when the link changes name or namespace.

    `parent` is the PCI address of the link's device, None for a virtual link and before kernel 5.14 (00e77ed8e64d). `kind` is
    IFLA_INFO_KIND, such as veth or tun, None for the links of most drivers. `lower` is the ifindex of the link below this one in
    the same namespace, None if there is none. `stacked` says that there is one, perhaps in another namespace. `altnames` are alternative names: in its namespace, a link can be found by them, and
    no other link can have them as a name.
    """

    ifindex: int
    ifname: str
    alias: str | None
    parent: str | None
    kind: str | None
    lower: int | None = None
    altnames: tuple[str, ...] = ()
    stacked: bool = False


class LinkFacts(NamedTuple):
    """The facts of a link that may change. `hardware_type` is an ARPHRD_* of linux/if_arp.h, `mtu` is in bytes, `up` is IFF_UP.

    `ipv4` is None if the link has no IPv4.
    """

    ifname: str
    hardware_type: int
    mtu: int
    up: bool
    ipv4: Ipv4Settings | None = None


class Hardware(NamedTuple):
    """The facts that sending on a link needs. `hardware_type` is as in `LinkFacts`, `flags` are IFF_*."""

    ifindex: int
    hardware_type: int
    flags: int
    address: bytes
    broadcast: bytes


@contextmanager
def links(netns_fd: int | None = None) -> Iterator["Links"]:
    """Open rtnetlink in a namespace; None means the calling thread's.

    The socket is closed at the end, because an open socket keeps the namespace alive.
    """
    with opened(socket.NETLINK_ROUTE, netns_fd) as route:
        yield Links(route)


class Links:
    """The links of one namespace. A failure is an OSError with the kernel's errno, the operation and its link."""

    def __init__(self, route: socket.socket) -> None:
        self._socket = route
        self._route = Netlink(route)

    def listed(self, wanted: Callable[[Link], bool] = lambda _: True) -> tuple[Link, ...]:
        """List those links of the namespace that are `wanted`; a namespace may have any number of other links.

        A dump that was interrupted is repeated, so `wanted` may be called again for a link.

        Raises:
            OSError: E2BIG, more than 65,536 links are wanted.
        """
        request = link_message(0) + attributes((_EXT_MASK, u32(_SKIP_STATS)))

        def read(answer: bytes) -> Link | None:
            link = _link(answer)
            return link if wanted(link) else None

        return tuple(self._route.dump("list links", _GETLINK, request, read))

    def link(self, ifindex: int) -> Link:
        """Read one link.

        Raises:
            OSError: ENODEV, it is gone.
        """
        answer = self.answer(ifindex)
        with understanding(f"read link {ifindex}"):
            return _link(answer)

    def answer(self, ifindex: int) -> bytes:
        """Return the kernel's message about one link, from struct ifinfomsg on.

        Raises:
            OSError: ENODEV, it is gone.
        """
        operation = f"read link {ifindex}"
        request = link_message(ifindex) + attributes((_EXT_MASK, u32(_SKIP_STATS)))
        with understanding(operation):
            (answer,) = self._route.ask(operation, _GETLINK, request)
            return answer

    def ask(self, operation: str, kind: int, payload: bytes, flags: int = 0) -> list[bytes]:
        """Send one request about another object than a link, as `Netlink.ask`."""
        return self._route.ask(operation, kind, payload, flags)

    def dump(self, operation: str, kind: int, payload: bytes, read: Callable[[bytes], _Read | None]) -> list[_Read]:
        """List objects of another kind than links, as `Netlink.dump`."""
        return self._route.dump(operation, kind, payload, read)

    def change(self, operation: str, link: bytes, *changes: tuple[int, bytes]) -> None:
        """Change attributes of a link (IFLA_*), or the flags that `link`, a struct ifinfomsg, has."""
        self._set(operation, link + attributes(*changes))

    def ifindex(self, ifname: str) -> int | None:
        """Return the ifindex of the link with this name; None if there is none. It does not wait for RTNL."""
        try:
            answer = fcntl.ioctl(self._socket, _SIOCGIFINDEX, _IFREQ_INDEX.pack(os.fsencode(ifname), 0))
        except OSError as error:
            if error.errno != ENODEV:
                raise
            return None
        ifindex: int = _IFREQ_INDEX.unpack(answer)[1]
        return ifindex

    def bus_info(self, link: Link) -> str | None:
        """Return what a link's driver says of its place on a bus, such as a PCI address; None if the driver or the link does not say it.

        No program can change it. The link is asked by its name, and must still have that name then.

        Source: ethtool_get_drvinfo(), net/ethtool/ioctl.c.
        """
        answer = ctypes.create_string_buffer(u32(_GDRVINFO), _DRVINFO_BYTES)
        try:
            fcntl.ioctl(
                self._socket, _SIOCETHTOOL, _IFREQ_POINTER.pack(os.fsencode(link.ifname), ctypes.addressof(answer))
            )
        except OSError as error:
            if error.errno not in (ENODEV, EOPNOTSUPP):
                raise
            return None
        bus_info = answer.raw[_BUS_INFO].partition(b"\0")[0].decode(errors="replace")
        return bus_info if self.ifindex(link.ifname) == link.ifindex else None

    def facts(self, ifindex: int) -> LinkFacts:
        """Read the facts of one link that may change."""
        with self._read_link(ifindex) as (hardware_type, flags, link_attributes):
            mtu = int.from_bytes(link_attributes[_MTU], sys.byteorder)
            return LinkFacts(
                text(link_attributes[IFNAME]), hardware_type, mtu, bool(flags & IFF_UP), _ipv4(link_attributes)
            )

    def hardware(self, ifindex: int) -> Hardware:
        """Read a link's hardware addresses and flags."""
        with self._read_link(ifindex) as (hardware_type, flags, link_attributes):
            return Hardware(
                ifindex, hardware_type, flags, link_attributes.get(ADDRESS, b""), link_attributes.get(_BROADCAST, b"")
            )

    def addresses(self, ifindex: int) -> tuple[IpInterface, ...]:
        """List the addresses of a link with their prefix lengths."""
        operation = f"list addresses of link {ifindex}"
        with understanding(operation):
            request = _IFADDRMSG.pack(socket.AF_UNSPEC, 0, 0, 0, ifindex)
            answers = self._route.ask(operation, _GETADDR, request, DUMP)
            return tuple(_address(answer) for answer in answers if _IFADDRMSG.unpack_from(answer)[4] == ifindex)

    @contextmanager
    def _read_link(self, ifindex: int) -> Iterator[tuple[int, int, dict[int, bytes]]]:
        """Read a link. Yield its hardware type, flags and attributes; an error while they are decoded becomes an OSError."""
        operation = f"read link {ifindex}"
        with understanding(operation):
            (answer,) = self._route.ask(operation, _GETLINK, link_message(ifindex))
            _, hardware_type, _, flags, _ = IFINFOMSG.unpack_from(answer)
            yield hardware_type, flags, decode_attributes(answer[IFINFOMSG.size :])

    def move(self, ifindex: int, netns_fd: int, ifname: str, alias: str | None = None) -> None:
        """Move a link into another namespace under a new name, in one message, so udev never sees it there under its old name.

        `alias` is its new alias; None keeps the old one.

        The kernel sets the link down, removes its addresses and may give it another ifindex. It first moves the link and then
        renames it. If the name is taken there, this fails and **the link has moved**, under its old name.

        Raises:
            OSError: EEXIST, the name is taken in the other namespace; ENODEV, the link is gone.

        Source: IFLA_NET_NS_FD with IFLA_IFNAME, do_setlink() in net/core/rtnetlink.c.
        """
        changes = attributes((_NETNS_FD, u32(netns_fd)), (IFNAME, string(ifname)))
        changes += b"" if alias is None else attributes((_ALIAS, alias.encode(errors="surrogateescape")))
        self._set(f"move link {ifindex} to another namespace as {ifname!r}", link_message(ifindex) + changes)

    def move_up(self, ifindex: int, netns_fd: int, ifname: str, mtu: int, ipv4: Ipv4Settings | None = None) -> None:
        """Move a link as `move` does, set its MTU (bytes) and IPv4 settings there and bring it up, all in one message.

        Raises:
            OSError: as `move`; ERANGE or EINVAL, the MTU is above the driver's limit, and **the link has moved**.

        Source: the order of do_setlink(): namespace, MTU, name, flags, settings of address families.
        """
        changes = attributes((_NETNS_FD, u32(netns_fd)), (_MTU, u32(mtu)), (IFNAME, string(ifname)))
        changes += b"" if ipv4 is None else _ipv4_settings(ipv4)
        operation = f"move link {ifindex} to another namespace as {ifname!r} with MTU {mtu}"
        self._set(operation, link_message(ifindex, up=True) + changes)

    def rename(self, ifindex: int, ifname: str) -> None:
        """Set a link down and rename it. Kernels before 6.2 rename no link that is up (bd039b5ea2a9, live renaming)."""
        operation = f"rename link {ifindex} to {ifname!r}"
        self._set(operation, link_message(ifindex, up=False))
        self._set(operation, link_message(ifindex) + attributes((IFNAME, string(ifname))))

    def set_alias(self, ifindex: int, alias: str) -> None:
        """Set a link's alias, which `ip link` shows."""
        # No NUL at the end: the kernel would keep it as a part of the alias.
        change = attributes((_ALIAS, alias.encode()))
        self._set(f"set alias {alias!r} on link {ifindex}", link_message(ifindex) + change)

    def remove_altnames(self, ifindex: int, altnames: Iterable[str]) -> None:
        """Remove alternative names of a link; without names, nothing is sent."""
        self._change_altnames("remove", _DELLINKPROP, ifindex, altnames)

    def add_altnames(self, ifindex: int, altnames: Iterable[str]) -> None:
        """Give a link alternative names.

        Raises:
            OSError: EEXIST, a link of the namespace has one of the names; the names before it were added.
        """
        self._change_altnames("add", _NEWLINKPROP, ifindex, altnames)

    def _change_altnames(self, verb: str, kind: int, ifindex: int, altnames: Iterable[str]) -> None:
        for part in _in_parts(altnames):
            changes = attributes((PROP_LIST | _NESTED, attributes(*((ALT_IFNAME, name) for name in part))))
            flags = EXCLUSIVE | CREATE | APPEND if kind == _NEWLINKPROP else 0
            self._route.ask(f"{verb} alternative names of link {ifindex}", kind, link_message(ifindex) + changes, flags)

    def delete(self, ifindex: int) -> None:
        """Delete a virtual link, such as a VLAN.

        Raises:
            OSError: ENODEV, it is gone; EOPNOTSUPP, links of this kind cannot be deleted.
        """
        self._route.ask(f"delete link {ifindex}", _DELLINK, link_message(ifindex))

    def add_address(self, ifindex: int, address: IpInterface) -> None:
        """Add an address with its on-link prefix. An address that the link already has is no error."""
        packed, prefix_length = address.ip.packed, address.network.prefixlen
        request = _IFADDRMSG.pack(family_of(address), prefix_length, 0, 0, ifindex)
        request += attributes((_IFA_LOCAL, packed), (_IFA_ADDRESS, packed))
        self._route.ask(f"add {address} to link {ifindex}", _NEWADDR, request, CREATE | REPLACE)

    def add_route(self, ifindex: int, route: Route, table: int | None = None) -> None:
        """Add a route through a link to a table; None means the main table. Without a gateway it is an on-link route.

        Only in another table than the main table it replaces a route to the same destination.

        Raises:
            OSError: EEXIST, such a route exists already, whichever program added it; ENETUNREACH, no link reaches the gateway.
        """
        destination, gateway = route
        scope = _ON_LINK if gateway is None else _UNIVERSE
        header_table = _MAIN_TABLE if table is None else 0
        request = RTMSG.pack(
            family_of(destination), destination.prefixlen, 0, 0, header_table, _STATIC, scope, _UNICAST, 0
        )
        request += attributes((RTA_DST, destination.network_address.packed), (RTA_OIF, u32(ifindex)))
        if gateway is not None:
            request += attributes((RTA_GATEWAY, gateway.packed))
        if table is not None:
            request += attributes((RTA_TABLE, u32(table)))
        operation = f"add route {destination}{'' if gateway is None else f' via {gateway}'} to link {ifindex}"
        self._route.ask(operation, _NEWROUTE, request, CREATE | (EXCLUSIVE if table is None else REPLACE))

    def set_up(self, ifindex: int) -> None:
        """Bring a link up."""
        self._set(f"set link {ifindex} up", link_message(ifindex, up=True))

    def _set(self, operation: str, request: bytes) -> None:
        self._route.ask(operation, NEWLINK, request)


def link_message(ifindex: int, *, up: bool | None = None) -> bytes:
    """Encode struct ifinfomsg, which begins every message about a link. `up` sets the link up or down; None changes nothing."""
    return IFINFOMSG.pack(socket.AF_UNSPEC, 0, ifindex, IFF_UP if up else 0, 0 if up is None else IFF_UP)


def _link(message: bytes) -> Link:
    _, _, ifindex, _, _ = IFINFOMSG.unpack_from(message)
    link_attributes = decode_attributes(message[IFINFOMSG.size :])
    info = decode_attributes(link_attributes.get(_LINKINFO, b""))
    alias, parent, kind = (
        None if value is None else text(value)
        for value in (link_attributes.get(_ALIAS), link_attributes.get(PARENT), info.get(_INFO_KIND))
    )
    # With IFLA_LINK_NETNSID, the ifindex is one of another namespace.
    lower = (
        int.from_bytes(link_attributes[_LINK], sys.byteorder)
        if _LINK in link_attributes and _LINK_NETNSID not in link_attributes
        else None
    )
    altnames = tuple(text(name) for name in decode_repeated(link_attributes.get(PROP_LIST, b""), ALT_IFNAME))
    return Link(ifindex, text(link_attributes[IFNAME]), alias, parent, kind, lower, altnames, _LINK in link_attributes)


def _in_parts(altnames: Iterable[str]) -> Iterator[list[bytes]]:
    """Encode names, in parts that fit into one attribute."""
    part: list[bytes] = []
    size = 0
    for name in map(string, altnames):
        if size + len(name) > _ALTNAMES_BYTES:
            yield part
            part, size = [], 0
        part.append(name)
        size += len(name) + 8  # with the attribute's header and padding
    if part:
        yield part


def _address(message: bytes) -> IpInterface:
    _, prefix_length, _, _, _ = _IFADDRMSG.unpack_from(message)
    address_attributes = decode_attributes(message[_IFADDRMSG.size :])
    # On a point-to-point link IFA_ADDRESS is the peer's address, and IFA_LOCAL is the link's own.
    return ip_interface((address_attributes.get(_IFA_LOCAL, address_attributes[_IFA_ADDRESS]), prefix_length))


def _ipv4_settings(settings: Ipv4Settings) -> bytes:
    """Encode settings of net.ipv4.conf: inet_set_link_af(), net/ipv4/devinet.c."""
    values = attributes(*((_IPV4_DEVCONF[name], u32(value)) for name, value in settings._asdict().items()))
    of_ipv4 = attributes((_INET_CONF | _NESTED, values))
    return attributes((_AF_SPEC | _NESTED, attributes((socket.AF_INET | _NESTED, of_ipv4))))


def _ipv4(link: dict[int, bytes]) -> Ipv4Settings | None:
    """Decode settings of net.ipv4.conf, of which the kernel sends all in one array: inet_fill_link_af(), net/ipv4/devinet.c."""
    of_ipv4 = decode_attributes(decode_attributes(link.get(_AF_SPEC, b"")).get(socket.AF_INET, b""))
    if _INET_CONF not in of_ipv4:
        return None
    values = {
        name: struct.unpack_from("=I", of_ipv4[_INET_CONF], (number - 1) * 4)[0]
        for name, number in _IPV4_DEVCONF.items()
    }
    return Ipv4Settings(**values)


def family_of(address: IpInterface | IpNetwork | IpAddress) -> int:
    """Return the number of an address's family, AF_INET or AF_INET6."""
    return socket.AF_INET if address.version == 4 else socket.AF_INET6  # noqa: PLR2004 - IPv4
