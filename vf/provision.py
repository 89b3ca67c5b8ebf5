"""Decide how a node's VFs come to be: how many, with which GUID, bound to which driver. Pure.

Each plan ends where identities change: create VFs, read the facts again, then set GUIDs and bind.
"""

from collections.abc import Container, Iterable
from typing import NamedTuple

from vf.address import PciAddress
from vf.errors import Misconfigured
from vf.function import Inventory, PhysicalFunction
from vf.guid import Guid, derived
from vf.step import AllowDrivers, BindDriver, CreateVfs, ProvisionStep, SetGuid


class Provision(NamedTuple):
    """One entry of `provision`: a PF and how many VFs it should have, with GUIDs derived from the PF's."""

    pf: PciAddress
    vfs: int


def create(wanted: Iterable[Provision], inventory: Inventory, in_use: Container[PciAddress]) -> tuple[CreateVfs, ...]:
    """Give the changes that make the wanted number of VFs.

    A PF that has the number already is left alone. The kernel can only replace all of a PF's VFs, so a PF with
    another number and a VF in use is left alone too.

    Raises:
        Misconfigured: there is no such PF, or its hardware has fewer VFs.
    """
    steps = []
    for provision in wanted:
        pf = _pf(provision, inventory)
        if pf.numvfs != provision.vfs and not any(vf.address in in_use for vf in pf.vfs):
            steps.append(CreateVfs(pf.address, provision.vfs, pf.numvfs))
    return tuple(steps)


def name_and_bind(wanted: Iterable[Provision], inventory: Inventory) -> tuple[ProvisionStep, ...]:
    """Give the changes that make unbound VFs usable: all GUIDs of a PF, then all drivers.

    Raises:
        Misconfigured: two VFs would get one GUID, or a PF has no GUID or driver to derive from.
    """
    steps: list[ProvisionStep] = []
    given: dict[Guid, PciAddress] = {}
    for provision in wanted:
        pf = _pf(provision, inventory)
        guids = _guids(pf, given)
        unbound = [vf for vf in pf.vfs if vf.driver is None]
        if unbound and (not guids or pf.driver is None):
            raise Misconfigured(
                f"PF {pf.address} has no driver or no node GUID, so its VFs cannot get theirs; is its driver loaded?"
            )
        steps += [SetGuid(pf.address, vf.index, guids[vf.address]) for vf in unbound]
        steps += [AllowDrivers(pf.address)] if unbound else []
        steps += [BindDriver(vf.address, str(pf.driver)) for vf in unbound]
    return tuple(steps)


def _guids(pf: PhysicalFunction, given: dict[Guid, PciAddress]) -> dict[PciAddress, Guid]:
    """Derive the GUIDs of a PF's VFs, noting each in `given`; empty for a PF that has none to derive from."""
    if pf.rdma is None or not pf.rdma.node_guid.usable:
        return {}
    guids = {vf.address: derived(pf.rdma.node_guid, vf.index) for vf in pf.vfs}
    for address, guid in guids.items():
        other = given.setdefault(guid, address)
        if other != address:
            raise Misconfigured(f"VFs {other} and {address} would both get GUID {guid}: their PFs' GUIDs are too alike")
    return guids


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
