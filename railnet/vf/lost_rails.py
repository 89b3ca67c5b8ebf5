"""Rails that pods have lost: the record says that a VF is in a sandbox, and the node shows that it is not. Pure.

Another program has made the VFs again or bound them to its driver, a driver was loaded again, or the card was pulled. The kernel gives a netdev that it makes to the
node, not to the sandbox, so the pod cannot get its rail back: a new pod can.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from railnet.vf.inventory import Inventory, VirtualFunction
from railnet.vf.pci_address import PciAddress
from railnet.vf.provision import driver_of_vfs
from railnet.vf.record import Attachment, Record


class RecordedRail(NamedTuple):
    """One rail of one sandbox: the key of its record, the VF and its interface in the sandbox."""

    key: str
    vf: PciAddress
    ifname: str


LostRails = Mapping[RecordedRail, str]
"""Of each rail that is lost, why: a clause whose subject is the VF."""


def lost_rails(inventory: Inventory, records: Iterable[Record]) -> LostRails:
    """Return the rails that are not where their records say. While an ADD or a DEL works on a sandbox its record says so, and none of its rails is lost."""
    return {
        RecordedRail(record.key, attachment.vf, attachment.ifname): why
        for record in records
        if record.stage == "attached"
        for attachment in record.attachments
        if (why := _why_lost(inventory, attachment)) is not None
    }


def _why_lost(inventory: Inventory, attachment: Attachment) -> str | None:
    vf = inventory.vf(attachment.vf)
    if vf is None:
        return "is not on the node any more: its card was pulled, or its PF has other VFs"
    if vf.fault is not None:  # it cannot be read, so it is not known where it is
        return None
    if vf.netdev is not None:
        return f"is on the node, as {vf.netdev.name}, and not in the pod: its driver was loaded again, or another program made the VFs again"
    if vf.driver is None:
        return "has no driver, and so no interface in the pod"
    return _other_driver(inventory, vf)


def _other_driver(inventory: Inventory, vf: VirtualFunction) -> str | None:
    """Return that a VF has a driver such as vfio-pci, a clause. With the right one, neither device need be visible here: both may be in the pod."""
    pf = inventory.pf(vf.pf)
    if pf is None or pf.driver is None or vf.rdma is not None:
        return None
    right = driver_of_vfs(pf.driver)
    if vf.driver == right:
        return None
    return f"is bound to the driver {vf.driver} in place of {right}, and so has no interface in the pod"
