"""The netdevs of the node's VFs, as sysfs shows them now. A netdev that is being renamed or returned is awaited a little.

Moving and renaming netdevs is `cni.attachment.netdev_return`'s.
"""

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import TypeVar

from railnet.errors import Misconfigured, NotReady, RailnetError, Unusable
from railnet.kernel.inventory import card_of, reread_vfs
from railnet.kernel.sysfs.functions import Sysfs
from railnet.kernel.waiting import until_awaited
from railnet.vf import orphan_rescue
from railnet.vf.inventory import Netdev, VirtualFunction
from railnet.vf.pci_address import PciAddress
from railnet.vf.permitted_networks import Network
from railnet.vf.record import Attachment
from railnet.vf.steps import RenameLink
from railnet.vf.vf_table import VfTable

_Found = TypeVar("_Found")
# A real kernel's sysfs shows a moved netdev at once, udev renames it within a second, a driver that is just being
# bound takes up to two (reference measurements of mlx5: 0.3 to 0.7 s).
WAIT_SECONDS = 2.0
_LOOK_SECONDS = 0.01


class NetdevLookup:
    """Reads sysfs and keeps the table up to date; waits at most `wait_seconds` for a netdev."""

    def __init__(self, table: VfTable, sysfs: Sysfs, wait_seconds: float = WAIT_SECONDS) -> None:
        self._table = table
        self._sysfs = sysfs
        self._seconds = wait_seconds
        # Attachments that were taken back from a sandbox, and whose VF is without a netdev since then.
        self.awaited: dict[PciAddress, Attachment] = {}

    def known(self, vf: PciAddress) -> Netdev | None:
        """Return the netdev that a VF had when it was read last."""
        facts = self._table.inventory.vf(vf)
        return None if facts is None else facts.netdev

    def require_known(self, vf: PciAddress) -> Netdev:
        """Return the netdev that a VF had when it was read last.

        Raises:
            NotReady, Unusable: it had none; as `get`.
        """
        netdev = self.known(vf)
        if netdev is None:
            raise self._without_netdev(vf)
        return netdev

    def note(self, netdevs: Mapping[PciAddress, Netdev]) -> None:
        """Have the table know netdevs that the kernel has just named. The other facts of their VFs stay as they were read last."""
        known = ((self._table.inventory.vf(vf), netdev) for vf, netdev in netdevs.items())
        self._table.reread({vf.address: replace(vf, netdev=netdev) for vf, netdev in known if vf is not None})

    def is_whole(self, vf: PciAddress) -> bool:
        """Return whether a VF had all that it should have when it was read last: a look may have met it in the middle of a move."""
        facts = self._table.inventory.vf(vf)
        return facts is not None and facts.fault is None and None not in (facts.driver, facts.netdev, facts.rdma)

    async def get(self, vf: PciAddress) -> Netdev:
        """Read a VF's netdev.

        Raises:
            NotReady: it has none now, and will have one. Unusable: it has none. OSError: as `netdev`.
        """
        netdev = (await self._find((vf,))).get(vf)
        if netdev is None:
            raise self._without_netdev(vf)
        return netdev

    def _without_netdev(self, vf: PciAddress) -> RailnetError:
        """Return the error for a VF that sysfs shows no netdev of.

        A VF of a driver that makes netdevs has one somewhere: it has just been moved or renamed, by Railnet or by udev, or its driver
        is being bound. Netlink names a netdev sooner than a busy machine's sysfs shows it.
        """
        why = self._table.withheld(vf)
        if vf in self.awaited or (why is None and orphan_rescue.makes_netdev(self._table.inventory, vf)):
            return NotReady(
                why or f"sysfs does not show the netdev of VF {vf} yet: it is being moved or renamed; try again"
            )
        return Unusable(why or f"VF {vf} has no netdev on this node: is its driver bound and ib_ipoib loaded?")

    async def returned(self, attachments: Iterable[Attachment]) -> dict[PciAddress, Netdev]:
        """Read the netdevs of VFs that are being returned; a VF without a driver has none.

        Raises:
            OSError: a VF's files cannot be read, or do not answer.
        """
        netdevs, coming = dict[PciAddress, Netdev](), list[PciAddress]()
        for vf in (attachment.vf for attachment in attachments if self._table.inventory.vf(attachment.vf) is not None):
            has_driver, netdev = await self._read(vf, partial(self._sysfs.driver_and_netdev, vf))
            if has_driver and netdev is not None:
                netdevs[vf] = netdev
            elif has_driver:
                coming.append(vf)
        return netdevs | await self._find(coming)

    def require_readable(self, vf: PciAddress) -> None:
        """Make sure that all facts of a VF and of its PF could be read.

        Raises:
            Unusable: one could not.
        """
        facts = self._table.inventory.vf(vf)
        pf = None if facts is None else self._table.inventory.pf(facts.pf)
        for function in (pf, facts):
            if function is not None and function.fault is not None:
                raise Unusable(f"{function.address} cannot be used: {function.fault}")

    async def has_driver(self, vf: PciAddress) -> bool:
        """Return whether a VF of this node is bound to a driver.

        Raises:
            OSError: that cannot be read, or the VF's files do not answer.
        """
        facts = self._table.inventory.vf(vf)
        return facts is not None and await self._read(vf, partial(self._sysfs.has_driver, vf))

    async def netdev(self, vf: PciAddress) -> Netdev | None:
        """Read a VF's netdev; None if it is not on the node now.

        Raises:
            OSError: that cannot be read, or the VF's files do not answer.
        """
        return await self._read(vf, partial(self._sysfs.netdev, vf))

    async def renamed(self, vfs: Iterable[PciAddress], steps: Iterable[RenameLink]) -> None:
        """Wait until sysfs shows these VFs' netdevs, under their new names after the steps that the kernel did.

        Raises:
            OSError: as `netdev`.
        """
        names, vfs = {step.ifindex: step.ifname for step in steps}, tuple(vfs)

        async def all_have_names() -> bool:
            return all([await self._has_name(names, vf) for vf in vfs])

        await until_awaited(all_have_names, self._seconds, _LOOK_SECONDS)

    async def _has_name(self, names: Mapping[int, str], vf: PciAddress) -> bool:
        netdev = await self.netdev(vf)
        return netdev is not None and names.get(netdev.ifindex, netdev.name) == netdev.name

    async def _read(self, vf: PciAddress, work: Callable[[], _Found]) -> _Found:
        return await self._sysfs.reads.read(card_of(self._table.inventory, vf), vf, work)

    def mtu(self, network: Network, vf: PciAddress, netdev: Netdev) -> int:
        """Return the MTU of a VF in a network, in bytes.

        Raises:
            Misconfigured: the network's MTU is larger than the PF's.
        """
        facts = self._table.inventory.vf(vf)
        pf = None if facts is None else self._table.inventory.pf(facts.pf)
        limit = netdev.mtu if pf is None or pf.netdev is None else pf.netdev.mtu
        if network.mtu == "pf":
            return limit
        if network.mtu > limit:
            raise Misconfigured(f"networks.{network.name}.mtu is {network.mtu}, but the PF of VF {vf} has {limit}")
        return network.mtu

    async def refresh(self, vfs: Iterable[VirtualFunction]) -> None:
        """Read some VFs as they are now, and have the table know them."""
        self._table.reread(await reread_vfs(self._sysfs, vfs))

    async def reread(self, vfs: Iterable[PciAddress], awaited: Container[PciAddress] | None = None) -> None:
        """Bring the table's facts about some VFs up to date; a VF that does not answer has a fault then.

        Waits while a VF with a driver shows no netdev: it is being renamed, by Railnet or by udev. `awaited` limits that to
        some of the VFs.
        """
        known = [vf for address in vfs if (vf := self._table.inventory.vf(address)) is not None]
        if not known:
            return
        newer: dict[PciAddress, VirtualFunction] = {}

        async def all_have_netdevs() -> bool:
            newer.update(await reread_vfs(self._sysfs, known))
            coming = (
                address for address, vf in newer.items() if not vf.fault and vf.driver is not None and vf.netdev is None
            )
            return not any(awaited is None or address in awaited for address in coming)

        await until_awaited(all_have_netdevs, self._seconds, _LOOK_SECONDS)
        self._table.reread(newer)

    async def _find(self, vfs: Iterable[PciAddress]) -> dict[PciAddress, Netdev]:
        """Read netdevs, waiting for all of them together; a VF whose netdev has not come is left out."""
        wanted, netdevs = set(vfs), dict[PciAddress, Netdev]()

        async def all_found() -> bool:
            for vf in wanted - netdevs.keys():
                if (netdev := await self.netdev(vf)) is not None:
                    netdevs[vf] = netdev
            return netdevs.keys() == wanted

        await until_awaited(all_found, self._seconds, _LOOK_SECONDS)
        return netdevs
