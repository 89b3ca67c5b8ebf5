"""The links of PFs: their administrative state, carrier and MAC, read by pyroute2.

The first request imports pyroute2 (`railnet.kernel.netlink.pyroute2_requests`), not this module: the import takes a tenth of a second, and
the first ADD after a daemon's start would wait for it. `railnet.kernel.netlink.link_changes` receives changes.
"""

import threading
from collections.abc import Iterable
from errno import ENODEV

from railnet.kernel.netlink.pf_link import PfLink
from railnet.vf.inventory import PhysicalFunction
from railnet.vf.mac import Mac
from railnet.vf.pci_address import PciAddress

_loading = threading.Lock()


def load() -> None:
    """Import pyroute2. Two threads that import it at the same time find it half-initialised, and one of them fails."""
    with _loading:
        import railnet.kernel.netlink.pyroute2_requests  # noqa: F401, PLC0415 - the module's docstring says why


def read(ifindexes: Iterable[int]) -> dict[int, PfLink]:
    """Read links by ifindex. A link that is gone is left out.

    Raises:
        OSError: what the kernel refused.
    """
    links: dict[int, PfLink] = {}
    wanted = tuple(ifindexes)
    if not wanted:
        return links
    load()
    from railnet.kernel.netlink.pyroute2_requests import opened  # noqa: PLC0415 - the module's docstring says why

    with opened() as route:
        for ifindex in wanted:
            try:
                links[ifindex] = route.link(ifindex)
            except OSError as error:
                if error.errno != ENODEV:
                    raise
    return links


def macs(pfs: Iterable[PhysicalFunction]) -> dict[PciAddress, Mac]:
    """Read the MACs of the Ethernet PFs that have a netdev in this namespace.

    Raises:
        OSError: what the kernel refused; ENODEV, a PF's netdev is gone.
    """
    ifindexes = {pf.address: pf.netdev.ifindex for pf in pfs if pf.link_layer == "Ethernet" and pf.netdev is not None}
    if not ifindexes:
        return {}
    load()
    from railnet.kernel.netlink.pyroute2_requests import opened  # noqa: PLC0415 - the module's docstring says why

    with opened() as route:
        return {pf: Mac.parse(route.link(ifindex).address) for pf, ifindex in ifindexes.items()}
