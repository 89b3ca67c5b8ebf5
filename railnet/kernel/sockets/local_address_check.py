"""Test whether an IP address belongs to the node itself."""

import socket

from railnet.vf.address_slice import IpAddress

_DISCARD = 9  # any port would do, as nothing is sent


def is_local(address: IpAddress) -> bool:
    """Return whether any link of the calling thread's network namespace has the address.

    Connecting a datagram socket sends nothing: the kernel only looks up the source address in the routing table. For a local
    address, the source is the address itself. Unlike a list of all addresses, this does not wait for RTNL.
    """
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6  # noqa: PLR2004 - IPv4
    with socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as probe:
        try:
            probe.connect((str(address), _DISCARD))
        except OSError:  # no route leads to the address, so it is not local
            return False
        source: str = probe.getsockname()[0]
        return source == str(address)
