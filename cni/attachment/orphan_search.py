"""The look into every network namespace for VFs' netdevs that are not on the node. What they are taken for is `vf.orphans`'s."""

import asyncio
from collections.abc import Collection
from pathlib import Path

from cni.cancellation import to_the_end
from kernel import orphan_netdevs
from vf.address import PciAddress
from vf.orphans import OrphanNetdev


class OrphanSearch:
    """One look at a time, which takes a millisecond for each namespace; who asks meanwhile shares the next one."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._wanted: set[PciAddress] = set()
        self._next: asyncio.Task[dict[PciAddress, OrphanNetdev]] | None = None
        self._looking = asyncio.Lock()

    async def find(self, vfs: Collection[PciAddress]) -> dict[PciAddress, OrphanNetdev]:
        """Look for these VFs' netdevs in all namespaces of the host but our own; no look that began earlier will do.

        Raises:
            OSError: the host's /proc cannot be read.
        """
        if not vfs:
            return {}
        self._wanted.update(vfs)
        if self._next is None:
            self._next = asyncio.create_task(self._look())
        found = await to_the_end(self._next)
        return {vf: found[vf] for vf in vfs if vf in found}

    async def _look(self) -> dict[PciAddress, OrphanNetdev]:
        async with self._looking:
            wanted, self._wanted, self._next = self._wanted, set(), None
            return await asyncio.to_thread(orphan_netdevs.find_orphans, wanted, self._root)
