"""The node's PFs and VFs with the carriers of Ethernet PFs: sysfs shows the functions, netlink their links.

The carrier of an InfiniBand PF is not asked for: it is the IPoIB interface's, and the RDMA port says more.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from kernel.netlink import pf_links
from kernel.netlink.pf_links import PfLink
from kernel.sysfs import Sysfs
from vf.address import PciAddress
from vf.inventory import Inventory, PhysicalFunction


def inventory(sysfs: Sysfs) -> Inventory:
    """Read all of them.

    Raises:
        OSError: the root is no sysfs, or the kernel refuses to report a link.
    """
    found = sysfs.inventory()
    return found.with_pfs(_with_carriers(found.pfs))


def reread_pfs(
    sysfs: Sysfs, pfs: Iterable[PhysicalFunction], known: Mapping[int, PfLink | None]
) -> dict[PciAddress, PhysicalFunction]:
    """Read the driver, the netdev, the RDMA port and the carrier of some PFs again, without a look at VFs.

    Args:
        sysfs: where the PFs are.
        pfs: the PFs.
        known: links that the kernel has just reported, by ifindex: these are not asked for.

    Raises:
        OSError: as `inventory`.
    """
    return _with_carriers([sysfs.reread_pf(pf) for pf in pfs], known)


def _with_carriers(
    pfs: Sequence[PhysicalFunction], known: Mapping[int, PfLink | None] = MappingProxyType({})
) -> dict[PciAddress, PhysicalFunction]:
    links = {ifindex: link for ifindex, link in known.items() if link is not None}
    links |= pf_links.read({_ethernet_ifindex(pf) for pf in pfs} - links.keys() - {0})
    return {pf.address: replace(pf, carrier=_carrier(links.get(_ethernet_ifindex(pf)))) for pf in pfs}


def _ethernet_ifindex(pf: PhysicalFunction) -> int:
    """Return the ifindex of an Ethernet PF's netdev; 0, which is no link's, of a PF that has none."""
    return pf.netdev.ifindex if pf.netdev is not None and pf.link_layer == "Ethernet" else 0


def _carrier(link: PfLink | None) -> bool | None:
    return None if link is None else link.known_carrier
