"""The VF table: the one place that says which VFs a node has and which sandbox owns each.

There is one for the daemon: the device plugin offers VFs by it, and `cni.attachment` claims and releases them in it, so the two
cannot disagree. One event loop owns it; it takes no locks.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

from railnet.errors import NotOurs
from railnet.vf.inventory import Inventory, PhysicalFunction, VirtualFunction
from railnet.vf.pci_address import PciAddress
from railnet.vf.rail_memory import RailNumbers

Observer = Callable[[], None]


class Owner(NamedTuple):
    """The sandbox that has a VF: the CNI container id and CNI_IFNAME, and the pod's UID ("" if it is not known)."""

    container_id: str
    ifname: str
    pod_uid: str


class VfTable:
    """Facts and ownership of every VF of the node; calls its observers after each change."""

    def __init__(self, inventory: Inventory) -> None:
        self._inventory = inventory
        self._numbers = inventory.numbers
        self._owners: dict[PciAddress, Owner] = {}
        self._withheld: dict[PciAddress, str] = {}
        self._unprovisioned: Mapping[PciAddress, str] = {}
        self._observers: list[Observer] = []
        # Counts changes of facts about single functions: an inventory that was begun before a change has older facts.
        self.generation = 0
        self._read_at: dict[PciAddress, int] = {}
        # Counts changes of the table: with the same version, all that it says is the same.
        self.version = 0

    @property
    def inventory(self) -> Inventory:
        """The facts as last read."""
        return self._inventory

    def owner(self, vf: PciAddress) -> Owner | None:
        """Return the sandbox that has a VF; None if it is free."""
        return self._owners.get(vf)

    def owned(self) -> frozenset[PciAddress]:
        """Return the VFs that sandboxes have, also those that the inventory does not show now."""
        return frozenset(self._owners)

    def withhold(self, reasons: Mapping[PciAddress, str]) -> None:
        """Replace the reasons why VFs must not be given to pods; a VF without a reason may be given."""
        if reasons != self._withheld:
            self._withheld = dict(reasons)
            self._notify()

    @property
    def reasons_to_withhold(self) -> Mapping[PciAddress, str]:
        """The reasons why VFs must not be given to pods: another object after each change."""
        return self._withheld

    def withheld(self, vf: PciAddress) -> str | None:
        """Return why a VF must not be given to a pod, and what to do; None if it may be given."""
        return self._withheld.get(vf)

    @property
    def unprovisioned(self) -> Mapping[PciAddress, str]:
        """The PFs that could not be given the VFs of the configuration, with the reason and the remedy."""
        return self._unprovisioned

    def report_unprovisioned(self, troubles: Mapping[PciAddress, str]) -> None:
        """Replace the reasons why PFs could not be given their VFs; the VFs of such a PF are unhealthy."""
        if troubles != self._unprovisioned:
            self._unprovisioned = dict(troubles)
            self._notify()

    def observe(self, observer: Observer) -> Callable[[], None]:
        """Call `observer` after every change, until the returned function is called."""
        self._observers.append(observer)
        return lambda: self._observers.remove(observer)

    def refresh(self, inventory: Inventory, generation: int | None = None) -> None:
        """Replace the facts; ownership stays, also of a VF that the inventory does not show now.

        A function with a fault keeps what does not change while it exists (`Inventory.recalling`).

        `generation` is of when the inventory was begun: facts about single functions that were read later are newer and stay.
        """
        if generation is not None:
            inventory = self._with_later_readings(inventory, generation)
        inventory = replace(inventory.recalling(self._inventory), numbers=self._numbers)
        if inventory != self._inventory:
            self._inventory = inventory
            self._notify()

    def number(self, numbers: RailNumbers) -> None:
        """Number the rails by `numbers` from now on, whatever cards the node shows."""
        self._numbers = numbers
        self.refresh(self._inventory)

    def reread(self, newer: Mapping[PciAddress, VirtualFunction]) -> None:
        """Replace the facts about some VFs. Unchanged facts count, too: an inventory that is being read may have older ones."""
        self._note_reading(newer)
        if changed := {address: vf for address, vf in newer.items() if vf != self._inventory.vf(address)}:
            self.refresh(self._inventory.with_vfs(changed))

    def reread_pfs(self, newer: Mapping[PciAddress, PhysicalFunction]) -> None:
        """Replace the facts about some PFs, as `reread` does for VFs; which VFs a PF has is left to `refresh`."""
        self._note_reading(newer)
        self.refresh(self._inventory.with_pfs(newer))

    def claim(self, vf: PciAddress, owner: Owner) -> None:
        """Claim a VF for a sandbox; the same sandbox may claim it again.

        Raises:
            NotOurs: another sandbox has it.
        """
        holder = self._owners.get(vf)
        if holder is None:
            self._owners[vf] = owner
            self._notify()
        elif holder != owner:
            raise NotOurs(f"VF {vf} belongs to sandbox {holder.container_id} (pod UID {holder.pod_uid or 'unknown'})")

    def release(self, vf: PciAddress, owner: Owner) -> None:
        """Release a VF of `owner`; a VF of another owner, or of none, stays as it is."""
        if self._owners.get(vf) == owner:
            del self._owners[vf]
            if vf in self._withheld:  # its reason was about the sandbox that had it
                self._withheld = {address: reason for address, reason in self._withheld.items() if address != vf}
            self._notify()

    def _with_later_readings(self, inventory: Inventory, generation: int) -> Inventory:
        later = {function for function, read_at in self._read_at.items() if read_at > generation}
        vfs = {vf.address: vf for vf in self._inventory.vfs() if vf.address in later}
        pfs = {pf.address: pf for pf in self._inventory.pfs if pf.address in later}
        return inventory.with_vfs(vfs).with_pfs(pfs)

    def _note_reading(self, functions: Iterable[PciAddress]) -> None:
        self.generation += 1
        self._read_at.update(dict.fromkeys(functions, self.generation))

    def _notify(self) -> None:
        self.version += 1
        for observer in tuple(self._observers):
            observer()
