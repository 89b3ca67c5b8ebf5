"""The search of all network namespaces for VFs' netdevs that are not on the node, shared by concurrent callers.

`railnet.vf.orphan_rescue` decides what is done about a netdev that is found.
"""

import asyncio
from collections.abc import Collection
from functools import partial
from pathlib import Path

from cni.cancellation_shield import to_the_end
from railnet.kernel.namespaces import orphan_netdev_return
from railnet.kernel.threads.bounded_threads import BoundedThreads
from railnet.vf.orphan_rescue import OrphanNetdev
from railnet.vf.pci_address import PciAddress


class OrphanSearch:
    """One search at a time, since it takes a millisecond for each namespace; concurrent callers share the next search."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._wanted: set[PciAddress] = set()
        self._next: asyncio.Task[dict[PciAddress, OrphanNetdev]] | None = None
        self._searching = asyncio.Lock()
        self._threads = BoundedThreads(1)

    async def find(self, vfs: Collection[PciAddress]) -> dict[PciAddress, OrphanNetdev]:
        """Search all namespaces of the host but the node's own; the search begins after this call.

        Raises:
            OSError: the host's /proc cannot be read.
        """
        if not vfs:
            return {}
        self._wanted.update(vfs)
        if self._next is None:
            self._next = asyncio.create_task(self._search())
        orphans = await to_the_end(self._next)
        return {vf: orphans[vf] for vf in vfs if vf in orphans}

    async def _search(self) -> dict[PciAddress, OrphanNetdev]:
        async with self._searching:
            wanted, self._wanted, self._next = self._wanted, set(), None
            return await self._threads.run("search", partial(orphan_netdev_return.find_orphans, wanted, self._root))
