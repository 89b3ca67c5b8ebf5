"""Claim VFs for a sandbox, waiting for the ones before it: kubelet gives a device to the next pod before the last one's DEL has begun."""

import asyncio
from collections.abc import Iterable

from vf.address import PciAddress
from vf.errors import NotReady
from vf.table import Owner, VfTable


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
