"""The links of PFs: their administrative state, carrier and MAC. pyroute2 reads the kernel's messages.

The first request imports pyroute2's messages (`railnet.kernel.netlink.minimal_pyroute2`), not this module: the import takes some hundredths of a second, and
the first ADD after a daemon's start would wait for it. `railnet.kernel.netlink.link_changes` receives changes.

No request asks for VF information (RTEXT_FILTER_VF): some kernels answer EMSGSIZE for an InfiniBand PF with 16 VFs or more.
"""

import threading
from collections.abc import Callable, Iterable
from errno import ENODEV

from railnet.kernel.netlink.pf_link_state import PfLink
from railnet.kernel.netlink.protocol import encode, understanding
from railnet.kernel.netlink.rtnetlink import NEWLINK, Links, links
from railnet.vf.inventory import PhysicalFunction
from railnet.vf.mac import Mac
from railnet.vf.pci_address import PciAddress

_importing = threading.Lock()


def decoder() -> Callable[[bytes], PfLink]:
    """Import pyroute2's messages, and return `railnet.kernel.netlink.minimal_pyroute2.parse`.

    Two threads that import them at the same time would find them half-initialised, and one of them would fail.
    """
    with _importing:
        from railnet.kernel.netlink import minimal_pyroute2  # noqa: PLC0415 - the module's docstring says why

        return minimal_pyroute2.parse


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
    parse, answer = decoder(), route.answer(ifindex)
    with understanding(f"read link {ifindex}"):
        return parse(encode(NEWLINK, 0, 0, answer))
