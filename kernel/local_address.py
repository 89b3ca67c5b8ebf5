"""Whether an address is one of the node's own."""

import socket

from vf.address_slice import IpAddress

_DISCARD = 9  # any port would do, as nothing is sent


def is_local(address: IpAddress) -> bool:
    """Return whether the calling thread's network namespace has an address itself, on whatever link.

    To connect a datagram socket asks the routing table which source it would send from, and sends nothing; for an address of
    its own that is the address itself. Waits for no RTNL, unlike a list of all addresses.
    """
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6  # noqa: PLR2004 - IPv4
    with socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as asking:
        try:
            asking.connect((str(address), _DISCARD))
        except OSError:  # there is no way to it, so it is not here
            return False
        source: str = asking.getsockname()[0]
        return source == str(address)
