"""Builder of the kernel's messages about a link."""

import struct

from railnet.kernel.netlink.protocol import attributes, encode, string

NEWLINK, DELLINK = 16, 17
_IFNAME, _ADDRESS, _OPERSTATE, _CARRIER, _PERMANENT = 3, 1, 16, 33, 54
_UP, _DOWN = 6, 2  # IF_OPER_*
_IFF_UP = 1
PRESENT, PERMANENT = bytes.fromhex("525400000001"), bytes.fromhex("525400000002")


def link_message(
    ifindex: int,
    *,
    kind: int = NEWLINK,
    family: int = 0,
    up: bool = True,
    carrier: bool = True,
    permanent: bool = False,
) -> bytes:
    """Return a message of the group of link changes. It is also an answer to the first request on a socket."""
    facts = attributes(
        (_IFNAME, string("eth2")),
        (_OPERSTATE, bytes([_UP if up and carrier else _DOWN])),
        (_CARRIER, bytes([carrier])),
        (_ADDRESS, PRESENT),
        *([(_PERMANENT, PERMANENT)] if permanent else []),
    )
    return encode(kind, 0, 1, struct.pack("=BxHiII", family, 1, ifindex, _IFF_UP if up else 0, 0) + facts)
