"""Bring VFs' netdevs back to the node's own network namespace, under their own names on the node.

`cni.attachment.attachments` and `cni.recovery` decide when that is done; `railnet.vf.orphan_rescue` decides the names.
"""

import logging
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from errno import EBUSY
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

from cni.attachment.host_netdev_lookup import NetdevLookup
from cni.attachment.orphan_search import OrphanSearch
from cni.sandbox_locks import PerKey
from railnet.kernel import perform, vf_netdev_recognition, vf_provisioning
from railnet.kernel.inventory import card_of
from railnet.kernel.namespaces import orphan_netdev_return
from railnet.kernel.namespaces.netns import NetnsIdentity, identity, opened
from railnet.kernel.sysfs.functions import Sysfs
from railnet.kernel.threads.bounded_threads import BoundedThreads
from railnet.vf import attachment_plan, orphan_rescue
from railnet.vf.inventory import Netdev, VirtualFunction
from railnet.vf.orphan_rescue import OrphanNetdev
from railnet.vf.pci_address import PciAddress
from railnet.vf.record import Attachment, Netns
from railnet.vf.restored_link_settings import Value
from railnet.vf.steps import ProbeAgain, RenameLink, ResetLink
from railnet.vf.vf_table import VfTable

_Done = TypeVar("_Done")
_log = logging.getLogger(__name__)
_THREADS_OF_A_CARD = 8  # for attaches and detaches; the kernel does one change of links at a time
_NAMES = "names of netdevs"
_PROBE_SECONDS = 20.0  # mlx5 takes half a second


class TakenBack(NamedTuple):
    """VFs whose netdevs are back: those that were `moved` with their netdevs as they are now, and those that were `looked_up`."""

    moved: dict[PciAddress, Netdev]
    looked_up: tuple[PciAddress, ...]


class NodeNetdevs:
    """The netdevs of free VFs, which belong in the node's own network namespace; `root` is where the host is seen."""

    def __init__(self, table: VfTable, sysfs: Sysfs, netdevs: NetdevLookup, root: Path) -> None:
        self._table = table
        self._sysfs = sysfs
        self._netdevs = netdevs
        self._root = root
        self._search = OrphanSearch(root)
        self._changing = PerKey()  # by VF
        self.threads = BoundedThreads(_THREADS_OF_A_CARD)

    async def take_back(self, netns: Netns, attachments: tuple[Attachment, ...], netns_fd: int | None) -> TakenBack:
        """Bring attachments' netdevs back from a namespace, or from another one; return which are back.

        `netns_fd` may be None, or of another namespace: then `netns` is opened, if it is alive.

        Raises:
            OSError: what the kernel refused; EBUSY, a netdev is still in a namespace.
        """
        expected = NetnsIdentity(netns.dev, netns.inode)
        if netns_fd is not None and identity(netns_fd) == expected:
            return await self._take_back(attachments, netns_fd)
        with opened(self._root, netns.path, expected) as fd:
            return await self._take_back(attachments, fd)

    async def _take_back(self, attachments: tuple[Attachment, ...], netns_fd: int | None) -> TakenBack:
        """Move the netdevs to the node; look up each netdev that was not in the namespace, or has another name now."""
        moved: dict[PciAddress, Netdev] = {}
        if netns_fd is not None:
            steps = attachment_plan.take_out(attachments)
            moved = await self.do(attachments, partial(perform.take_back, steps, netns_fd, self._sysfs))
        others = tuple(attachment for attachment in attachments if attachment.vf not in moved)
        return TakenBack(moved, tuple(await self._look_up(others)) if others else ())

    async def _look_up(self, attachments: tuple[Attachment, ...]) -> dict[PciAddress, Netdev]:
        """Rename netdevs that came back under another name; return those that are on the node.

        A netdev that does not come back was moved by another program, so every namespace is searched for it. A netdev that
        is in no namespace (its driver was unbound, ib_ipoib was unloaded) is no failure: its VF is withheld until it has one,
        and that netdev has its own name and settings again (`rename`).
        """
        returned = await self._netdevs.returned(attachments)
        lost = [attachment for attachment in attachments if attachment.vf not in returned]
        orphans_by_vf = await self._search.find(await self.absent(attachment.vf for attachment in lost))
        if moves := attachment_plan.move_out(attachment for attachment in lost if attachment.vf in orphans_by_vf):
            await self.do(attachments, partial(orphan_netdev_return.move_to_node, moves, orphans_by_vf, self._root))
        # A netdev that is in no namespace was awaited already, and is not awaited again.
        returned |= await self._netdevs.returned(
            [attachment for attachment in lost if attachment.vf in orphans_by_vf or await self.has(attachment.vf)]
        )
        if kept := sorted(vf for vf in orphans_by_vf if vf not in returned):
            raise OSError(
                EBUSY,
                f"the netdev of VF {kept[0]} is still in network namespace {orphans_by_vf[kept[0]].netns.path}, and did not come back "
                "when it was moved; the VF stays this sandbox's, and the move is tried again when the runtime calls again",
            )
        returned |= await self._replaced([attachment for attachment in lost if attachment.vf not in returned])
        # Also one that has come since the last look: it has neither its name nor its settings.
        self._netdevs.awaited |= {
            attachment.vf: attachment
            for attachment in lost
            if attachment.vf not in returned and await self._netdevs.has_driver(attachment.vf)
        }
        await self._give_back(attachments, returned)
        return returned

    async def _give_back(
        self, attachments: tuple[Attachment, ...], returned: Mapping[PciAddress, Netdev]
    ) -> tuple[RenameLink, ...]:
        """Give netdevs that are back the names and the settings that they had before; return the renames."""
        if renames := attachment_plan.rename(attachments, returned):
            await self.do(attachments, partial(perform.detach, renames, None))
        await self._reset(attachment_plan.reset(attachments, returned))
        return renames

    async def _replaced(self, attachments: Collection[Attachment]) -> dict[PciAddress, Netdev]:
        """Bind the drivers of VFs again whose netdevs a pod may have hidden, and return the new netdevs.

        Where neither kernel nor driver names a netdev's device, a pod that removes Railnet's mark hides it. With its driver, it goes
        from wherever it is.

        Raises:
            OSError: the kernel refuses, so the VF stays the sandbox's.
        """
        if not attachments or not vf_netdev_recognition.accepted_kinds():
            return {}
        # Where sysfs is late, netlink shows the netdevs that have just been moved.
        names = [attachment.host_ifname for attachment in attachments]
        shown = await self.do(tuple(attachments), partial(perform.links_on_node, names))
        hidden = [
            attachment
            for attachment in attachments
            if attachment.host_ifname not in shown and await self._may_be_hidden(attachment.vf)
        ]
        for attachment in hidden:
            vf = self._table.inventory.vf(attachment.vf)
            if vf is not None and vf.driver is not None:
                _log.warning("VF %s: its netdev is not to be found: binding %s again", vf.address, vf.driver)
                await self._probe(ProbeAgain(vf.address, vf.driver))
        return await self._netdevs.returned(hidden)

    async def _may_be_hidden(self, vf: PciAddress) -> bool:
        return orphan_rescue.makes_netdev(self._table.inventory, vf) and bool(await self.absent((vf,)))

    async def _reset(self, steps: Iterable[ResetLink]) -> None:
        """Give netdevs that are back the settings that they had before; what a pod did to them must not reach the next pod.

        A netdev that keeps a setting is replaced by a new one: its driver is bound again, which costs half a second for mlx5.

        Raises:
            OSError: the kernel refuses that, so the VF stays the sandbox's.
        """
        for step in steps:
            left = await self._reset_one(step)
            vf = self._table.inventory.vf(step.vf)
            if left and vf is not None and vf.driver is not None:
                _log.warning(
                    "VF %s: its last pod left %s as it is: binding %s again", step.vf, ", ".join(left), vf.driver
                )
                await self._probe(ProbeAgain(step.vf, vf.driver))
                netdev = await self._netdevs.get(step.vf)
                await self._reset_one(replace(step, ifindex=netdev.ifindex))

    async def _reset_one(self, step: ResetLink) -> Mapping[str, Value]:
        card = card_of(self._table.inventory, step.vf)
        return await self.threads.run_to_the_end(card, partial(perform.reset, step))

    async def do(self, attachments: tuple[Attachment, ...], work: Callable[[], _Done]) -> _Done:
        """Do to the end what blocks, in a thread of the attachments' card: work of another card waits for none of these.

        Raises:
            Exception: what `work` raises.
        """
        card = card_of(self._table.inventory, attachments[0].vf) if attachments else None
        return await self.threads.run_to_the_end(card, work)

    async def has(self, vf: PciAddress) -> bool:
        """Return whether a VF's netdev is on the node.

        Raises:
            OSError: that cannot be read.
        """
        return await self._netdevs.netdev(vf) is not None

    async def absent(self, vfs: Iterable[PciAddress]) -> tuple[PciAddress, ...]:
        """Return those VFs that have a driver, and no netdev on the node.

        Raises:
            OSError: that cannot be read of one.
        """
        return tuple([vf for vf in vfs if not await self.has(vf) and await self._netdevs.has_driver(vf)])

    async def missing(self) -> tuple[VirtualFunction, ...]:
        """Return the free VFs that should have a netdev on the node and have none."""
        if seeming := orphan_rescue.missing(self._table.inventory, self._table.owned()):
            await self._netdevs.refresh(seeming)
        return orphan_rescue.missing(self._table.inventory, self._table.owned())

    async def find_orphans(self, vfs: Collection[PciAddress]) -> dict[PciAddress, OrphanNetdev]:
        """Search all namespaces of the host for VFs' netdevs.

        Raises:
            OSError: the host's /proc cannot be read.
        """
        return await self._search.find(vfs)

    async def rename_free(self) -> None:
        """Rename free VFs' netdevs that have a pod's names: the kernel returned them when their namespace ended.

        A VF that is claimed meanwhile is left alone: its ADD renames it.

        Raises:
            OSError: what the kernel refused.
        """
        free = [vf.address for vf in self._table.inventory.vfs() if self._table.owner(vf.address) is None]
        for vf in self._to_be_renamed(free):
            async with self._alone_with((vf,)):
                if self._table.owner(vf) is None:
                    await self._rename((vf,))

    async def rename(self, addresses: Collection[PciAddress]) -> None:
        """Rename the netdevs of these VFs that have a pod's name; the caller has claimed these VFs.

        It waits for what was begun for a VF while the VF was free. A netdev that its DEL did not find has any name and any settings, and is
        given those that its record had.

        Raises:
            OSError: what the kernel refused.
        """
        async with self._alone_with(addresses):
            await self._rename(addresses)

    @asynccontextmanager
    async def _alone_with(self, addresses: Iterable[PciAddress]) -> AsyncIterator[None]:
        """Hold the locks of VFs. Work for a free VF checks the VF's owner inside; an ADD comes here after its claim, and so after that work."""
        async with AsyncExitStack() as locks:
            for vf in sorted(addresses):  # in one order, so that no two tasks wait for each other
                await locks.enter_async_context(self._changing.held(str(vf)))
            yield

    def _to_be_renamed(self, addresses: Collection[PciAddress]) -> list[PciAddress]:
        """Return the VFs whose netdev is on the node, and not under its own name or without its own settings."""
        awaited = {vf for vf in addresses if vf in self._netdevs.awaited and self._netdevs.known(vf) is not None}
        return sorted(awaited | {vf.address for vf in orphan_rescue.misnamed(self._table.inventory, addresses)})

    async def _rename(self, addresses: Collection[PciAddress]) -> None:
        await self._end_waiting(addresses)
        misnamed = orphan_rescue.misnamed(self._table.inventory, frozenset(addresses))
        if misnamed:
            vfs = tuple(vf.address for vf in misnamed)
            written = await self.threads.run_to_the_end(_NAMES, partial(orphan_netdev_return.written_names, vfs))
            steps = orphan_rescue.rename_on_node(self._table.inventory, misnamed, written)
            renamed = await self.threads.run_to_the_end(_NAMES, partial(perform.rename, steps))
            # No record says how they were: they came back from a namespace that ended, and their record was lost.
            await self._reset(ResetLink(vf.address, vf.netdev.ifindex, {}) for vf in misnamed if vf.netdev is not None)
            await self._netdevs.renamed(vfs, renamed)
            await self._netdevs.reread(vfs)

    async def _end_waiting(self, addresses: Collection[PciAddress]) -> None:
        for attachment in [self._netdevs.awaited[vf] for vf in addresses if vf in self._netdevs.awaited]:
            netdev = self._netdevs.known(attachment.vf)
            if netdev is not None:
                steps = await self._give_back((attachment,), {attachment.vf: netdev})
                await self._netdevs.renamed((attachment.vf,), steps)
                await self._netdevs.reread((attachment.vf,))
                del self._netdevs.awaited[attachment.vf]

    def reasons_awaited(self) -> dict[PciAddress, str]:
        """Return why no pod gets the VFs that were taken back without their netdevs, until those have their names and settings again."""
        return {
            vf: f"VF {vf} was taken back from a pod without its netdev: it is given its name and settings when it comes"
            for vf in self._netdevs.awaited
        }

    def withhold_awaited(self) -> None:
        """Have no pod get a VF whose netdev is awaited, from the moment on in which its sandbox releases it."""
        if self._netdevs.awaited:
            self._table.withhold({**self.reasons_awaited(), **self._table.reasons_to_withhold})

    async def probe_again(self, step: ProbeAgain) -> None:
        """Bind a free VF's driver again; a VF that was claimed meanwhile is left alone.

        Raises:
            OSError: the kernel refuses.
        """
        async with self._alone_with((step.vf,)):
            if self._table.owner(step.vf) is None:
                _log.warning("VF %s has no netdev in any namespace: binding %s again", step.vf, step.driver)
                await self._probe(step)
                await self._netdevs.reread((step.vf,))

    async def _probe(self, step: ProbeAgain) -> None:
        """Bind again; no other card waits for it, since a write to a dead card never returns.

        Raises:
            OSError: the kernel refuses, or the driver does not come in time.
        """
        card = card_of(self._table.inventory, step.vf)
        await self._sysfs.writes.write(card, _PROBE_SECONDS, partial(vf_provisioning.probe_again, step, self._sysfs))
