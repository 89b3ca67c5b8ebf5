"""Hands VFs over from a sandbox to the next: kubelet may assign a VF again before the DEL of its last sandbox, so a claim waits for that.

`cni.attachment.attachments` decides which VFs a sandbox gets; `railnet.vf.vf_table` keeps the owner of each VF.
"""

import asyncio
import logging
from collections.abc import Iterable

from railnet.errors import NotOurs, NotReady
from railnet.vf.pci_address import PciAddress
from railnet.vf.record import Record
from railnet.vf.vf_table import Owner, VfTable

_log = logging.getLogger(__name__)


def owner_of(record: Record) -> Owner:
    """Return the owner of a record's VFs: its sandbox."""
    return Owner(record.container_id, record.ifname, record.pod.uid)


class Claims:
    """Claims in the VF table; a claim waits for at most `wait_seconds`."""

    def __init__(self, table: VfTable, wait_seconds: float) -> None:
        self._table = table
        self._seconds = wait_seconds
        self._ended: set[PciAddress] = set()  # free VFs that were taken back from their last sandbox

    async def claim(self, vfs: tuple[PciAddress, ...], owner: Owner) -> None:
        """Claim all VFs or none; wait while another sandbox, which is being taken down, has one of them.

        Raises:
            NotReady: a sandbox still has one when the time is over. NotOurs: as `VfTable.claim`.
        """
        if self._claimed(vfs, owner):  # as nearly always: then there is nothing to wait for
            return
        changed = asyncio.Event()
        stop = self._table.observe(changed.set)
        try:
            async with asyncio.timeout(self._seconds):
                while not self._claimed(vfs, owner):
                    changed.clear()
                    await changed.wait()
        except TimeoutError:
            holders = ", ".join(
                f"{vf} by {holder.container_id}" for vf in vfs if (holder := self._table.owner(vf)) not in (None, owner)
            )
            raise NotReady(f"still in a sandbox that is being taken down: {holders}; kubelet tries again") from None
        finally:
            stop()

    def own(self, record: Record) -> None:
        """Claim the VFs of a record; a VF of another sandbox keeps its owner, which is logged."""
        for attachment in record.attachments:
            try:
                self._table.claim(attachment.vf, owner_of(record))
            except NotOurs as error:
                _log.error("sandbox %s: %s", record.key, error)

    def own_unless_owned(self, record: Record) -> tuple[PciAddress, ...]:
        """Claim those VFs of a record that no other sandbox has; return the VFs that the record's sandbox then has."""
        owner = owner_of(record)
        vfs = tuple(
            attachment.vf for attachment in record.attachments if self._table.owner(attachment.vf) in (None, owner)
        )
        for vf in vfs:
            self._table.claim(vf, owner)
        return vfs

    def release(self, vfs: Iterable[PciAddress], owner: Owner) -> None:
        """Release VFs of `owner`; a VF of another owner keeps it."""
        for vf in vfs:
            self._table.release(vf, owner)

    def release_ended(self, vfs: tuple[PciAddress, ...], owner: Owner) -> None:
        """Release VFs that were taken back from their sandbox; kubelet may still list them for its pod."""
        self.release(vfs, owner)
        self._ended.update(vfs)

    def has_ended(self, vf: PciAddress) -> bool:
        """Return whether the last sandbox of a free VF has surely ended: the VF was taken back from it."""
        return vf in self._ended

    def _claimed(self, vfs: tuple[PciAddress, ...], owner: Owner) -> bool:
        # Claim none unless all are free: to release some again would wake other claims, and theirs would wake this one.
        if any(self._table.owner(vf) not in (None, owner) for vf in vfs):
            return False
        for vf in vfs:
            self._table.claim(vf, owner)
        self._ended.difference_update(vfs)
        return True
