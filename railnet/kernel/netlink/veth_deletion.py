"""Delete the host's end of a dead pod's veth, for the case that a process still keeps the pod's network namespace."""

import socket
from errno import ENODEV

from railnet.kernel.netlink.protocol import Netlink, opened
from railnet.kernel.netlink.rtnetlink import link_message, links

_DELLINK = 17  # RTM_DELLINK, include/uapi/linux/rtnetlink.h


def delete(ifname: str, address: str) -> bool:
    """Delete the veth with this name and this hardware address in the calling thread's namespace. Return whether it existed.

    The kernel deletes the veth's other end too, in any namespace.

    Raises:
        OSError: what the kernel refused.
    """
    with links() as here:
        ifindex = here.ifindex(ifname)
        if (
            ifindex is None
            or here.link(ifindex).kind != "veth"
            or here.hardware(ifindex).address.hex(":") != address.lower()
        ):
            return False
    with opened(socket.NETLINK_ROUTE) as route:
        try:
            Netlink(route).ask(f"delete link {ifname}", _DELLINK, link_message(ifindex))
        except OSError as error:
            if error.errno != ENODEV:
                raise
    return True
