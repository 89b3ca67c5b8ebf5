"""Claim VFs for a sandbox, waiting for the ones before it: kubelet gives a device to the next pod before the last one's DEL has begun."""

import asyncio
import logging
from collections.abc import Iterable

from vf.address import PciAddress
from vf.errors import NotOurs, NotReady
from vf.record import Record
from vf.table import Owner, VfTable

_log = logging.getLogger(__name__)


def owner_of(record: Record) -> Owner:
    """Name the sandbox that a record is of."""
    return Owner(record.container_id, record.ifname, record.pod.uid)


class Claims:
    """Claims in the VF table; a claim waits for at most `wait_seconds`."""

    def __init__(self, table: VfTable, wait_seconds: float) -> None:
        self._table = table
        self._seconds = wait_seconds

    async def claim(self, vfs: tuple[PciAddress, ...], owner: Owner) -> None:
        """Claim all VFs or none, waiting for sandboxes that are being taken down.

        Raises:
            NotReady: a sandbox still has one when the time is over. NotOurs: as `VfTable.claim`.
        """
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
        """Claim what a record has; what is another's stays so, and is told."""
        for attachment in record.attachments:
            try:
                self._table.claim(attachment.vf, owner_of(record))
            except NotOurs as error:
                _log.error("sandbox %s: %s", record.key, error)

    def release(self, vfs: Iterable[PciAddress], owner: Owner) -> None:
        """Give VFs back; one that is somebody else's by now stays so."""
        for vf in vfs:
            self._table.release(vf, owner)

    def _claimed(self, vfs: tuple[PciAddress, ...], owner: Owner) -> bool:
        # Looked at first: to claim some and give them back would wake whoever waits for those, and they us.
        if any(self._table.owner(vf) not in (None, owner) for vf in vfs):
            return False
        for vf in vfs:
            self._table.claim(vf, owner)
        return True
