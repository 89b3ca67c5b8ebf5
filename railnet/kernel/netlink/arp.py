"""ARP announcements: they replace outdated entries for a link's IPv4 addresses in the caches of its neighbours.

For IPv6, the kernel announces addresses (`railnet.kernel.perform`). docs/decisions/0018 says why the kernel's arp_notify does not
serve for IPv4.
"""

import ctypes
import os
import socket
import struct
from collections.abc import Iterable
from ipaddress import IPv4Address

from railnet.kernel.libc import LIBC
from railnet.kernel.netlink.rtnetlink import Hardware, links

# include/uapi/linux/if.h
_IFF_NOARP = 0x80
_IFF_LOWER_UP = 0x10000
_ETH_P_IP, _ETH_P_ARP = 0x0800, 0x0806  # include/uapi/linux/if_ether.h
_SOCKADDR_LL_BYTES = 20  # include/uapi/linux/if_packet.h; the struct is longer for a longer hardware address


def announce(ifname: str, addresses: Iterable[IPv4Address]) -> bool:
    """Announce addresses on a link of the calling thread's namespace. Return False if the link has no carrier yet.

    A link without ARP (IFF_NOARP) needs no announcement.

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
    """Encode an ARP announcement: a request for the sender's own address. Neighbours update their entries for it.

    Source: RFC 5227 section 3; RFC 4391 section 9 for InfiniBand, whose hardware addresses have 20 bytes.
    """
    head = struct.pack("!HHBBH", link.hardware_type, _ETH_P_IP, len(link.address), len(address.packed), 1)
    return head + link.address + address.packed + bytes(len(link.address)) + address.packed


def _broadcast(link: Hardware, packet: bytes) -> None:
    """Send a packet to a link's broadcast address. The kernel adds the link layer's header.

    The C library sends it: Python's `sendto` refuses hardware addresses of more than eight bytes.
    """
    protocol = socket.htons(_ETH_P_ARP)
    to = struct.pack("=HHiHBB", socket.AF_PACKET, protocol, link.ifindex, 0, 0, len(link.broadcast)) + link.broadcast
    to = to.ljust(_SOCKADDR_LL_BYTES, b"\0")
    with socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC, 0) as packet_socket:
        if LIBC.sendto(packet_socket.fileno(), packet, len(packet), 0, to, len(to)) < 0:
            number = ctypes.get_errno()
            raise OSError(number, f"announce on link {link.ifindex}: {os.strerror(number)}")
