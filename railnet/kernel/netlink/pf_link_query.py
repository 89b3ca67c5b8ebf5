"""The links of PFs: their administrative state, carrier and MAC. `railnet.kernel.netlink.link_changes` receives changes.

No request asks for VF information (RTEXT_FILTER_VF): some kernels answer EMSGSIZE for an InfiniBand PF with 16 VFs or more.
"""

from collections.abc import Iterable
from errno import ENODEV

from railnet.kernel.netlink.pf_link_state import PfLink
from railnet.kernel.netlink.protocol import decode_attributes, understanding
from railnet.kernel.netlink.rtnetlink import ADDRESS, IFF_UP, IFINFOMSG, Links, links
from railnet.vf.inventory import PhysicalFunction
from railnet.vf.mac import Mac
from railnet.vf.pci_address import PciAddress

# IFLA_* of include/uapi/linux/if_link.h
_OPERSTATE, _CARRIER, _PERM_ADDRESS = 16, 33, 54
# IF_OPER_* of include/uapi/linux/if.h
_OPERSTATES = ("UNKNOWN", "NOTPRESENT", "DOWN", "LOWERLAYERDOWN", "TESTING", "DORMANT", "UP")


def parse(message: bytes) -> PfLink:
    """Return the state of a link from the kernel's message about it, which begins with struct ifinfomsg.

    Raises:
        LookupError, ValueError, struct.error: the message or an attribute that every kernel sends is missing or malformed.
    """
    _, _, _, flags, _ = IFINFOMSG.unpack_from(message)
    values = decode_attributes(message[IFINFOMSG.size :])
    address = values.get(_PERM_ADDRESS) or values.get(ADDRESS, b"")
    return PfLink(bool(flags & IFF_UP), bool(values[_CARRIER][0]), _OPERSTATES[values[_OPERSTATE][0]], address.hex(":"))


def read(ifindexes: Iterable[int]) -> dict[int, PfLink]:
    """Read links by ifindex. A link that is gone is left out.

    Raises:
        OSError: what the kernel refused.
    """
    states: dict[int, PfLink] = {}
    wanted = tuple(ifindexes)
    if not wanted:
        return states
    with links() as route:
        for ifindex in wanted:
            try:
                states[ifindex] = link_state(route, ifindex)
            except OSError as error:
                if error.errno != ENODEV:
                    raise
    return states


def macs(pfs: Iterable[PhysicalFunction]) -> dict[PciAddress, Mac]:
    """Read the MACs of the Ethernet PFs that have a netdev in this namespace.

    Raises:
        OSError: what the kernel refused; ENODEV, a PF's netdev is gone.
    """
    ifindexes = {pf.address: pf.netdev.ifindex for pf in pfs if pf.link_layer == "Ethernet" and pf.netdev is not None}
    if not ifindexes:
        return {}
    with links() as route:
        return {pf: Mac.parse(link_state(route, ifindex).address) for pf, ifindex in ifindexes.items()}


def link_state(route: Links, ifindex: int) -> PfLink:
    """Read one link.

    Raises:
        OSError: ENODEV, there is no such link. EBADMSG, the answer is malformed.
    """
    answer = route.answer(ifindex)
    with understanding(f"read link {ifindex}"):
        return parse(answer)
