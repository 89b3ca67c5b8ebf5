"""Read the settings of a link, and write them: what `railnet.vf.restored_link_settings` has a table of.

Source: include/uapi/linux/if_link.h, whose names are in the comments; do_setlink(), net/core/rtnetlink.c.
"""

import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from struct import Struct
from typing import NamedTuple

from railnet.kernel.netlink.protocol import attributes, decode_attributes, decode_repeated, text, u32, understanding
from railnet.kernel.netlink.rtnetlink import ALT_IFNAME, IFINFOMSG, IFNAME, PARENT, PROP_LIST, Links, link_message
from railnet.vf.restored_link_settings import Settings, Value

# IFF_* of include/uapi/linux/if.h that a program may change: DEBUG, NOTRAILERS, NOARP, PROMISC, ALLMULTI, MULTICAST, DYNAMIC.
# Not IFF_UP: whether a netdev is up is the concern of whatever uses it.
_IFF_CHANGEABLE = 0x4 | 0x20 | 0x80 | 0x100 | 0x200 | 0x1000 | 0x8000
_LINKINFO, _INFO_DATA, _INFO_KIND = 18, 2, 1  # IFLA_LINKINFO, IFLA_INFO_*
_XDP, _XDP_FD, _XDP_ATTACHED, _XDP_FLAGS = 43, 1, 2, 3  # IFLA_XDP*
_XDP_MODES = (1 << 1, 1 << 2, 1 << 3)  # XDP_FLAGS_{SKB,DRV,HW}_MODE
_NESTED = 1 << 15


class _Kind(NamedTuple):
    """Reads a value from the bytes of an attribute, and writes it to them."""

    read: Callable[[bytes], Value]
    write: Callable[..., bytes]


_NUMBER = _Kind(lambda raw: int.from_bytes(raw, sys.byteorder), u32)
_BYTE = _Kind(lambda raw: raw[0], lambda value: bytes((value,)))
_HEX = _Kind(lambda raw: raw.hex(":"), lambda value: bytes.fromhex(value.replace(":", "")))
_TEXT = _Kind(text, lambda value: value.encode(errors="surrogateescape"))  # an alias, which has no NUL at its end
_SIMPLE: Mapping[str, tuple[int, _Kind]] = {
    "address": (1, _HEX),  # IFLA_ADDRESS
    "broadcast": (2, _HEX),  # IFLA_BROADCAST
    "mtu": (4, _NUMBER),  # IFLA_MTU
    "master": (10, _NUMBER),  # IFLA_MASTER
    "txqueuelen": (13, _NUMBER),  # IFLA_TXQLEN
    "mode": (17, _BYTE),  # IFLA_LINKMODE
    "alias": (20, _TEXT),  # IFLA_IFALIAS
    "group": (27, _NUMBER),  # IFLA_GROUP
    "promiscuity": (30, _NUMBER),  # IFLA_PROMISCUITY
    "protodown": (39, _BYTE),  # IFLA_PROTO_DOWN
    "gso_max_segs": (40, _NUMBER),  # IFLA_GSO_MAX_SEGS
    "gso_max_size": (41, _NUMBER),  # IFLA_GSO_MAX_SIZE
    "gro_max_size": (58, _NUMBER),  # IFLA_GRO_MAX_SIZE, kernel 5.19
    "gso_ipv4_max_size": (63, _NUMBER),  # IFLA_GSO_IPV4_MAX_SIZE, kernel 6.3
    "gro_ipv4_max_size": (64, _NUMBER),  # IFLA_GRO_IPV4_MAX_SIZE, kernel 6.3
}
_ABSENT: Mapping[str, Value] = {"alias": "", "master": 0}  # the kernel omits these attributes
_READ_ONLY = frozenset({"promiscuity"})
_XDP_REQUEST = Struct("=i")


class KnownLink(NamedTuple):
    """A link's name and its PCI device, as `Link` has them, and its settings; a setting that this kernel does not report is left out."""

    ifname: str
    parent: str | None
    settings: dict[str, Value]


def read(links: Links, ifindex: int) -> KnownLink:
    """Read the settings of a link, and by what it is known.

    Raises:
        OSError: ENODEV, the link is gone.
    """
    answer = links.answer(ifindex)
    with understanding(f"read settings of link {ifindex}"):
        flags = IFINFOMSG.unpack_from(answer)[3]
        link_attributes = decode_attributes(answer[IFINFOMSG.size :])
        info = decode_attributes(link_attributes.get(_LINKINFO, b""))
        simple = {
            name: kind.read(link_attributes[number])
            for name, (number, kind) in _SIMPLE.items()
            if number in link_attributes
        }
        xdp = decode_attributes(link_attributes.get(_XDP, b"")).get(_XDP_ATTACHED, b"\0")[0]
        altnames = sorted(text(name) for name in decode_repeated(link_attributes.get(PROP_LIST, b""), ALT_IFNAME))
        several: dict[str, Value] = {"flags": flags & _IFF_CHANGEABLE, "xdp": xdp, "altnames": tuple(altnames)}
        if info.get(_INFO_KIND, b"").rstrip(b"\0") == b"ipoib":
            several["ipoib"] = info.get(_INFO_DATA, b"").hex()
        parent = text(link_attributes[PARENT]) if PARENT in link_attributes else None
        return KnownLink(text(link_attributes[IFNAME]), parent, {**_ABSENT, **simple, **several})


def write(links: Links, ifindex: int, current: Settings, wanted: Mapping[str, Value]) -> None:
    """Give a link some settings, as far as the kernel permits; `current` has all its settings as they are now."""
    for name, value in wanted.items():
        # One request for each: if the kernel refuses one, the others are written all the same.
        with suppress(OSError):
            _write(links, ifindex, name, current[name], value)


def _write(links: Links, ifindex: int, name: str, current: Value, value: Value) -> None:
    match name, value:
        case "xdp", _:
            _remove_xdp(links, ifindex)
        case "altnames", tuple() if isinstance(current, tuple):
            links.remove_altnames(ifindex, [altname for altname in current if altname not in value])
            links.add_altnames(ifindex, [altname for altname in value if altname not in current])
        case "flags", int():
            links.change(f"set flags of link {ifindex}", IFINFOMSG.pack(0, 0, ifindex, value, _IFF_CHANGEABLE))
        case _ if name in _SIMPLE and name not in _READ_ONLY:
            number, kind = _SIMPLE[name]
            links.change(f"set {name} of link {ifindex}", link_message(ifindex), (number, kind.write(value)))


def _remove_xdp(links: Links, ifindex: int) -> None:
    for mode in _XDP_MODES:
        program = attributes((_XDP_FD, _XDP_REQUEST.pack(-1)), (_XDP_FLAGS, u32(mode)))
        with suppress(
            OSError
        ):  # a mode that the driver lacks, or a program of a link of BPF: what is left is read again
            links.change(f"remove XDP program of link {ifindex}", link_message(ifindex), (_XDP | _NESTED, program))
