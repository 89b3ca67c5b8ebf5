"""Provisioning of a node's VFs: plan their number, GUIDs or MACs, and drivers. Pure.

There are two plans, because new VFs have new identities: create VFs; then, with facts read again, set GUIDs or MACs and bind.
"""

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import NamedTuple

from railnet.errors import Misconfigured
from railnet.vf import guid, mac
from railnet.vf.guid import Guid
from railnet.vf.inventory import Inventory, PhysicalFunction, VirtualFunction
from railnet.vf.mac import Mac
from railnet.vf.pci_address import PciAddress
from railnet.vf.pf_selector import PfSelector, described
from railnet.vf.steps import (
    AllowDrivers,
    BindDriver,
    BringUp,
    CreateVfs,
    PfStep,
    ProvisionStep,
    SetGuid,
    SetGuidByLink,
    SetMac,
)

# The driver of a PF's VFs if it is not the PF's own, from the device tables of drivers/net/ethernet/intel.
_VF_DRIVERS = {"igb": "igbvf", "ixgbe": "ixgbevf", "i40e": "iavf", "ice": "iavf"}


class Provision(NamedTuple):
    """One entry of `provision`: a PF and the number of its VFs. Their GUIDs or MACs are derived from the PF's."""

    pf: PciAddress
    vfs: int


class ProvisionBySelector(NamedTuple):
    """One entry of `provision` that names PFs by conditions, so that one file serves unlike nodes: each PF gets this number of VFs."""

    vfs: int
    select: PfSelector = PfSelector()


def selected(
    entries: Sequence[Provision | ProvisionBySelector], inventory: Inventory
) -> tuple[tuple[Provision, ...], dict[PciAddress, str]]:
    """Return each PF with the number of its VFs, and why a PF gets none: two entries select it.

    An entry that names a PF by its address is returned whether this node has the PF or not. A selector matches only PFs of the link
    layers that pools ask for, as `rails: auto` does; it may match none: another entry, or another node, has such PFs.
    """
    by_pf: dict[PciAddress, list[int]] = {}
    for position, entry in enumerate(entries):
        for pf in (entry.pf,) if isinstance(entry, Provision) else matching(entry.select, inventory):
            by_pf.setdefault(pf, []).append(position)
    wanted = [Provision(pf, entries[positions[0]].vfs) for pf, positions in by_pf.items() if len(positions) == 1]
    twice = {pf: _twice(pf, positions) for pf, positions in by_pf.items() if len(positions) > 1}
    return tuple(wanted), twice


def matching(select: PfSelector, inventory: Inventory) -> tuple[PciAddress, ...]:
    """Return the PFs that a selector matches, in PCI order."""
    pfs = (pf for pf in inventory.pfs if pf.link_layer in inventory.rail_link_layers)
    return tuple(pf.address for pf in pfs if select.matches(pf))


def unmatched(entries: Sequence[Provision | ProvisionBySelector], inventory: Inventory) -> dict[PciAddress, str]:
    """Return why PFs without VFs get none: no entry is for a PF of this node, so its selectors are probably wrong."""
    pfs = [pf for pf in inventory.pfs if pf.link_layer in inventory.rail_link_layers]
    wanted, twice = selected(entries, inventory)
    has_selector = any(isinstance(entry, ProvisionBySelector) for entry in entries)
    if not has_selector or twice or any(inventory.pf(entry.pf) is not None for entry in wanted):
        return {}
    why = (
        "no entry of `provision` in node.yaml matches a PF of this node, so no VFs are made: "
        f"it has {', '.join(map(described, pfs))}; correct the entries, or add one for these"
    )
    return {pf.address: why for pf in pfs if pf.numvfs == 0}


def _twice(pf: PciAddress, positions: Sequence[int]) -> str:
    places = " and ".join(f"provision[{position}]" for position in positions)
    return f"PF {pf} is matched by {places} in node.yaml, so it gets no VFs by them; let only one of them match it"


def create(wanted: Iterable[Provision], inventory: Inventory, in_use: Container[PciAddress]) -> tuple[CreateVfs, ...]:
    """Plan the creation of the wanted number of VFs.

    A PF that already has this number is not changed. The kernel can only replace all VFs of a PF, so a PF with another
    number is not changed while one of its VFs is in use.

    Raises:
        Misconfigured: there is no such PF, or its hardware supports fewer VFs.
    """
    steps = []
    for provision in wanted:
        pf = _pf(provision, inventory)
        if pf.numvfs != provision.vfs and not any(vf.address in in_use for vf in pf.vfs):
            steps.append(CreateVfs(pf.address, provision.vfs, pf.numvfs))
    return tuple(steps)


def came_back(wanted: Iterable[Provision], inventory: Inventory) -> bool:
    """Return whether a PF that should have VFs has none: its card was away, and PCI forgets VFs with their card."""
    pfs = (inventory.pf(entry.pf) for entry in wanted if entry.vfs)
    return any(pf is not None and pf.fault is None and pf.numvfs == 0 for pf in pfs)


def name_and_bind(
    wanted: Iterable[Provision],
    inventory: Inventory,
    macs: Mapping[PciAddress, Mac],
    owners: dict[Guid | Mac, PciAddress] | None = None,
) -> tuple[ProvisionStep, ...]:
    """Plan the steps that make unbound VFs usable: set all GUIDs or MACs of a PF, then bind all drivers.

    Args:
        wanted: the PFs.
        inventory: the facts of the node.
        macs: the MACs of the node's Ethernet PFs.
        owners: the function that has each GUID or MAC already, for a caller that plans one PF after the other; it is added to.

    Raises:
        Misconfigured: two functions would have the same GUID or MAC; or a PF has no driver, no GUID or MAC to derive from, or
            no interface for setting them.
    """
    steps: list[ProvisionStep] = []
    if owners is None:
        owners = {address: pf for pf, address in macs.items()}
    for provision in wanted:
        pf = _pf(provision, inventory)
        names = _names(pf, macs.get(pf.address))
        _claim(names, owners)
        unbound = [vf for vf in pf.vfs if vf.driver is None]
        steps += _name(pf, unbound, names) + _bind(pf, unbound) if unbound else []
    return tuple(steps)


def driver_of_vfs(pf_driver: str) -> str:
    """Return the driver that a PF's VFs need to be network interfaces of this node."""
    return _VF_DRIVERS.get(pf_driver, pf_driver)


def _names(pf: PhysicalFunction, pf_mac: Mac | None) -> dict[PciAddress, Guid | Mac]:
    """Derive the MACs or GUIDs of a PF's VFs. Return none if the PF has neither."""
    if pf_mac is not None:
        return {vf.address: mac.derived(pf_mac, vf.index) for vf in pf.vfs}
    if pf.rdma is not None and pf.rdma.node_guid.usable and pf.link_layer == "InfiniBand":
        return {vf.address: guid.derived(pf.rdma.node_guid, vf.index) for vf in pf.vfs}
    return {}


def _claim(names: Mapping[PciAddress, Guid | Mac], owners: dict[Guid | Mac, PciAddress]) -> None:
    """Note the function that has each GUID or MAC; refuse one that another function has."""
    for address, name in names.items():
        other = owners.setdefault(name, address)
        if other != address:
            kind = type(name).__name__.upper()
            raise Misconfigured(
                f"{other} and {address} would both have {kind} {name}, since the {kind}s of their PFs are too similar; "
                "provision only one of these PFs"
            )


def _name(
    pf: PhysicalFunction, vfs: Iterable[VirtualFunction], names: Mapping[PciAddress, Guid | Mac]
) -> list[ProvisionStep]:
    if not names:
        raise Misconfigured(_why_nameless(pf))
    bring_up = [BringUp(pf.netdev.ifindex)] if pf.link_layer == "Ethernet" and pf.netdev is not None else []
    return [*bring_up, *(_set(pf, vf.index, names[vf.address]) for vf in vfs)]


def _why_nameless(pf: PhysicalFunction) -> str:
    if pf.link_layer == "InfiniBand":
        return f"PF {pf.address} has no driver or no node GUID, from which the GUIDs of its VFs are derived; load its driver"
    return (
        f"PF {pf.address} has no network interface here, through which the MACs of its VFs are set; load its driver, "
        "and run the daemon in the host's network namespace"
    )


def _set(pf: PhysicalFunction, index: int, name: Guid | Mac) -> PfStep:
    if isinstance(name, Guid) and pf.ofed_guid_files:
        return SetGuid(pf.address, index, name)
    if pf.netdev is None:
        raise Misconfigured(
            f"PF {pf.address} has neither MLNX_OFED's GUID files (sriov/{index}/node) nor a network interface here, so "
            "the GUIDs of its VFs cannot be set: modprobe ib_ipoib"
        )
    if isinstance(name, Guid):
        return SetGuidByLink(pf.netdev.ifindex, index, name)
    return SetMac(pf.netdev.ifindex, index, name)


def _bind(pf: PhysicalFunction, vfs: Iterable[VirtualFunction]) -> list[ProvisionStep]:
    if pf.driver is None:
        raise Misconfigured(f"PF {pf.address} has no driver, so its VFs cannot be bound to one; load the PF's driver")
    return [AllowDrivers(pf.address), *(BindDriver(vf.address, driver_of_vfs(pf.driver)) for vf in vfs)]


def _pf(provision: Provision, inventory: Inventory) -> PhysicalFunction:
    pf = inventory.pf(provision.pf)
    if pf is None:
        known = ", ".join(str(known.address) for known in inventory.pfs) or "none"
        raise Misconfigured(f"provision: this node has no PF {provision.pf} (it has: {known})")
    if provision.vfs > pf.totalvfs:
        raise Misconfigured(
            f"provision: PF {pf.address} has at most {pf.totalvfs} VFs (sriov_totalvfs), not {provision.vfs}"
        )
    return pf
