"""Tell a link's neighbours which hardware address its IPv4 addresses have now: they may remember another one.

For IPv6 the kernel does it (`kernel.perform`); docs/decisions/0018 says why its arp_notify does not serve for IPv4.
"""

import ctypes
import os
import socket
import struct
from collections.abc import Iterable
from ipaddress import IPv4Address

from kernel.netlink.links import Hardware, links

# include/uapi/linux/if.h
_IFF_NOARP = 0x80
_IFF_LOWER_UP = 0x10000
_ETH_P_IP, _ETH_P_ARP = 0x0800, 0x0806  # include/uapi/linux/if_ether.h
_SOCKADDR_LL_BYTES = 20  # include/uapi/linux/if_packet.h; a longer hardware address makes it longer


def announce(ifname: str, addresses: Iterable[IPv4Address]) -> bool:
    """Announce addresses on a link of the calling thread's namespace; False if it has no carrier yet.

    A link that knows no ARP needs no announcement.

    Raises:
        OSError: ENODEV, the link is gone; else what the kernel refused.
    """
    with links() as here:
        link = here.hardware(socket.if_nametoindex(ifname))
    if link.flags & _IFF_NOARP:
        return True
    if not link.flags & _IFF_LOWER_UP:
        return False
    for address in addresses:
        _broadcast(link, announcement(link, address))
    return True


def announcement(link: Hardware, address: IPv4Address) -> bytes:
    """Encode an ARP announcement: a request for the sender's own address, which updates the neighbours' entries of it.

    Source: RFC 5227 section 3; RFC 4391 section 9 for InfiniBand, whose hardware addresses have 20 bytes.
    """
    head = struct.pack("!HHBBH", link.hardware_type, _ETH_P_IP, len(link.address), len(address.packed), 1)
    return head + link.address + address.packed + bytes(len(link.address)) + address.packed


def _broadcast(link: Hardware, packet: bytes) -> None:
    """Send to a link's broadcast address; the kernel adds its kind's header.

    By the C library: Python's `sendto` refuses hardware addresses of more than eight bytes.
    """
    protocol = socket.htons(_ETH_P_ARP)
    to = struct.pack("=HHiHBB", socket.AF_PACKET, protocol, link.ifindex, 0, 0, len(link.broadcast)) + link.broadcast
    to = to.ljust(_SOCKADDR_LL_BYTES, b"\0")
    libc = ctypes.CDLL(None, use_errno=True)
    with socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC, 0) as wire:
        if libc.sendto(wire.fileno(), packet, len(packet), 0, to, len(to)) < 0:
            number = ctypes.get_errno()
            raise OSError(number, f"announce on link {link.ifindex}: {os.strerror(number)}")
