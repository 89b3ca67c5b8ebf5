"""VFs' netdevs on their way home: out of a sandbox, or from wherever somebody moved them, and under their own names."""

import asyncio
import logging
from collections.abc import Collection, Iterable
from pathlib import Path

from cni.attachment.netdev_lookup import NetdevLookup
from cni.attachment.orphan_search import OrphanSearch
from cni.cancellation import to_the_end
from kernel import orphan_netdevs, perform
from kernel.netns import NetnsIdentity, identity, opened
from kernel.sysfs import Sysfs
from vf import orphans, plan
from vf.address import PciAddress
from vf.inventory import VirtualFunction
from vf.orphans import OrphanNetdev
from vf.record import Attachment, Netns
from vf.steps import ProbeAgain
from vf.table import VfTable

_log = logging.getLogger(__name__)


class NodeNetdevs:
    """The node's own network namespace, where the netdevs of free VFs are; `root` is where the host is seen."""

    def __init__(self, table: VfTable, sysfs: Sysfs, netdevs: NetdevLookup, root: Path) -> None:
        self._table = table
        self._sysfs = sysfs
        self._netdevs = netdevs
        self._root = root
        self._strays = OrphanSearch(root)

    async def take_back(
        self, netns: Netns, attachments: tuple[Attachment, ...], netns_fd: int | None
    ) -> tuple[PciAddress, ...]:
        """Take attachments back from a namespace, and from wherever else they are; gives the VFs whose netdevs are home.

        `netns_fd` may be None, or of another namespace: then the one that is meant is opened, if it lives.

        Raises:
            OSError: what the kernel refused.
        """
        expected = NetnsIdentity(netns.dev, netns.inode)
        if netns_fd is not None and identity(netns_fd) == expected:
            return await self._take_back(attachments, netns_fd)
        with opened(self._root, netns.path, expected) as fd:
            return await self._take_back(attachments, fd)

    async def _take_back(self, attachments: tuple[Attachment, ...], netns_fd: int | None) -> tuple[PciAddress, ...]:
        """Move the netdevs out; then, as they have come back under whatever name, give them theirs. Gives the VFs that have one.

        One that does not come back is looked for in every namespace: somebody has moved it. One that is nowhere (its
        driver was unbound, ib_ipoib unloaded) is gone, which is no failure: its VF is not given out until it has one again.
        """
        if netns_fd is not None:
            await to_the_end(asyncio.to_thread(perform.detach, plan.move_out(attachments), netns_fd))
        returned = await self._netdevs.returned(attachments)
        lost = [one for one in attachments if one.vf not in returned]
        strays = await self._strays.find(self.absent(one.vf for one in lost))
        if moves := plan.move_out(one for one in lost if one.vf in strays):
            await to_the_end(asyncio.to_thread(orphan_netdevs.take_home, moves, strays, self._root))
        # What is nowhere has been waited for, and is not once more.
        returned |= await self._netdevs.returned(one for one in lost if one.vf in strays or self.has(one.vf))
        renames = plan.rename(attachments, returned)
        await to_the_end(asyncio.to_thread(perform.detach, renames, None))
        return tuple(returned)

    def has(self, vf: PciAddress) -> bool:
        """Tell whether a VF's netdev is on the node."""
        return self._sysfs.netdev(vf) is not None

    def absent(self, vfs: Iterable[PciAddress]) -> tuple[PciAddress, ...]:
        """Give those VFs that have a driver, and no netdev on the node."""
        return tuple(vf for vf in vfs if not self.has(vf) and self._netdevs.has_driver(vf))

    def missing(self) -> tuple[VirtualFunction, ...]:
        """Give the free VFs that should have a netdev on the node and have none."""
        if seeming := orphans.missing(self._table.inventory, self._table.owned()):
            self._netdevs.refresh(seeming)
        return orphans.missing(self._table.inventory, self._table.owned())

    async def strays(self, vfs: Collection[PciAddress]) -> dict[PciAddress, OrphanNetdev]:
        """Look for VFs' netdevs in all namespaces of the host.

        Raises:
            OSError: the host's /proc cannot be read.
        """
        return await self._strays.find(vfs)

    async def rename_free(self) -> None:
        """Give free VFs' netdevs that have a pod's names their own back: the kernel returned them, and no record told.

        Raises:
            OSError: what the kernel refused.
        """
        free = [vf.address for vf in self._table.inventory.vfs() if self._table.owner(vf.address) is None]
        await self.rename(free)

    async def rename(self, addresses: Collection[PciAddress]) -> None:
        """Rename those of these VFs that are misnamed; nobody else is at them.

        Raises:
            OSError: what the kernel refused.
        """
        misnamed = [vf for vf in orphans.misnamed(self._table.inventory, ()) if vf.address in addresses]
        if misnamed:
            vfs = tuple(vf.address for vf in misnamed)
            written = await to_the_end(asyncio.to_thread(orphan_netdevs.names_at_home, vfs))
            steps = orphans.rename_home(self._table.inventory, misnamed, written)
            await to_the_end(asyncio.to_thread(perform.detach, steps, None))
            await self._netdevs.renamed(vfs, steps)
            await self._netdevs.reread(vfs)

    async def probe_again(self, step: ProbeAgain) -> None:
        """Bind a free VF's driver anew.

        Raises:
            OSError: the kernel refuses.
        """
        if self._table.owner(step.vf) is None:
            _log.warning("VF %s has no netdev anywhere: binding %s again", step.vf, step.driver)
            await to_the_end(asyncio.to_thread(perform.probe_again, step, self._sysfs))
            await self._netdevs.reread((step.vf,))
