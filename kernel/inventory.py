"""The node's PFs and VFs from sysfs, with the carriers of Ethernet PFs from netlink.

The carrier of an InfiniBand PF is not read: it belongs to the IPoIB interface, and the RDMA port's state is more exact.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from kernel.netlink import pf_link_state
from kernel.netlink.pf_link_state import PfLink
from kernel.sysfs import Sysfs
from vf.inventory import Inventory, PhysicalFunction
from vf.pci_address import PciAddress


def inventory(sysfs: Sysfs) -> Inventory:
    """Read all PFs, VFs and carriers.

    Raises:
        OSError: the root is not a sysfs.
    """
    found = sysfs.inventory()
    return found.with_pfs(_with_carriers(found.pfs))


def reread_pfs(
    sysfs: Sysfs, pfs: Iterable[PhysicalFunction], known: Mapping[int, PfLink | None]
) -> dict[PciAddress, PhysicalFunction]:
    """Read the driver, the netdev, the RDMA port and the carrier of some PFs again, without their VFs.

    Args:
        sysfs: the tree with the PFs.
        pfs: the PFs to read.
        known: links by ifindex. A link that is not None was just reported by the kernel, and is not read again.
    """
    return _with_carriers([sysfs.reread_pf(pf) for pf in pfs], known)


def _with_carriers(
    pfs: Sequence[PhysicalFunction], known: Mapping[int, PfLink | None] = MappingProxyType({})
) -> dict[PciAddress, PhysicalFunction]:
    links: dict[int, PfLink | OSError] = {ifindex: link for ifindex, link in known.items() if link is not None}
    links |= _links({_ethernet_ifindex(pf) for pf in pfs} - links.keys() - {0})
    return {pf.address: _with_carrier(pf, links.get(_ethernet_ifindex(pf))) for pf in pfs}


def _links(ifindexes: Iterable[int]) -> Mapping[int, PfLink | OSError]:
    """Read links by ifindex; a link that the kernel refuses costs no other link."""
    wanted = tuple(ifindexes)
    try:
        return pf_link_state.read(wanted)
    except OSError as error:
        if len(wanted) == 1:
            return {wanted[0]: error}
        return {ifindex: link for one in wanted for ifindex, link in _links((one,)).items()}


def _ethernet_ifindex(pf: PhysicalFunction) -> int:
    """Return the ifindex of an Ethernet PF's netdev. Return 0, which no link has, for any other PF."""
    return pf.netdev.ifindex if pf.netdev is not None and pf.link_layer == "Ethernet" else 0


def _with_carrier(pf: PhysicalFunction, link: PfLink | OSError | None) -> PhysicalFunction:
    if isinstance(link, OSError):
        return replace(pf, carrier=None, fault=pf.fault or f"the state of its link is not known: {link}; look in dmesg")
    return replace(pf, carrier=None if link is None else link.known_carrier)
