"""The netdevs of the node's VFs as sysfs shows them just now; one that is being renamed or returned is waited for a little."""

import asyncio
from collections.abc import Container, Iterable, Mapping

from kernel.sysfs import Sysfs
from vf.address import PciAddress
from vf.errors import Misconfigured, Unusable
from vf.inventory import Netdev, VirtualFunction
from vf.network import Network
from vf.record import Attachment
from vf.steps import RenameLink
from vf.table import VfTable

_LOOK_SECONDS = 0.01


class NetdevLookup:
    """Reads sysfs, and has the table know it; `wait_seconds` is how long a netdev may be on its way."""

    def __init__(self, table: VfTable, sysfs: Sysfs, wait_seconds: float) -> None:
        self._table = table
        self._sysfs = sysfs
        self._seconds = wait_seconds

    async def get(self, vf: PciAddress) -> Netdev:
        """Read a VF's netdev.

        Raises:
            Unusable: it has none.
        """
        netdev = (await self._find((vf,))).get(vf)
        if netdev is None:
            why = self._table.withheld(vf)
            raise Unusable(why or f"VF {vf} has no netdev on this node: is its driver bound and ib_ipoib loaded?")
        return netdev

    async def returned(self, attachments: Iterable[Attachment]) -> dict[PciAddress, Netdev]:
        """Read the netdevs of VFs that are coming back; one without a driver has none."""
        return await self._find([one.vf for one in attachments if self.has_driver(one.vf)])

    def has_driver(self, vf: PciAddress) -> bool:
        """Tell whether a VF of this node is bound to a driver."""
        found = self._table.inventory.vf(vf)
        return found is not None and self._sysfs.reread(found).driver is not None

    async def renamed(self, vfs: Iterable[PciAddress], steps: Iterable[RenameLink]) -> None:
        """Wait a little until the netdevs of these VFs are called as they were told to be; a name may be another link's."""
        names, left = {step.ifindex: step.ifname for step in steps}, set(vfs)
        give_up = asyncio.get_running_loop().time() + self._seconds
        while True:
            left = {vf for vf in left if not self._is_called_by(names, vf)}
            if not left or asyncio.get_running_loop().time() >= give_up:
                return
            await asyncio.sleep(_LOOK_SECONDS)

    def _is_called_by(self, names: Mapping[int, str], vf: PciAddress) -> bool:
        netdev = self._sysfs.netdev(vf)
        return netdev is not None and names.get(netdev.ifindex, netdev.name) == netdev.name

    def mtu(self, network: Network, vf: PciAddress, netdev: Netdev) -> int:
        """Give the MTU of a VF in a network, in bytes.

        Raises:
            Misconfigured: the network's is larger than its PF's.
        """
        found = self._table.inventory.vf(vf)
        pf = None if found is None else self._table.inventory.pf(found.pf)
        limit = netdev.mtu if pf is None or pf.netdev is None else pf.netdev.mtu
        if network.mtu == "pf":
            return limit
        if network.mtu > limit:
            raise Misconfigured(f"networks.{network.name}.mtu is {network.mtu}, but the PF of VF {vf} has {limit}")
        return network.mtu

    def refresh(self, vfs: Iterable[VirtualFunction]) -> None:
        """Bring the table's facts about some VFs up to date, as they are at this moment."""
        newer = {vf.address: self._sysfs.reread(vf) for vf in vfs}
        self._table.reread(newer)

    async def reread(self, vfs: Iterable[PciAddress], awaited: Container[PciAddress] | None = None) -> None:
        """Bring the table's facts about some free VFs up to date; a whole inventory is the resync's, not a request's.

        Looks again while a VF with a driver shows no netdev: it is being renamed just then, by us or by udev. `awaited` says
        for which that may be so, where not for all.
        """
        known = [vf for address in vfs if (vf := self._table.inventory.vf(address)) is not None]
        give_up = asyncio.get_running_loop().time() + self._seconds
        while True:
            newer = {vf.address: self._sysfs.reread(vf) for vf in known}
            coming = [one for one, vf in newer.items() if vf.driver is not None and vf.netdev is None]
            left = coming if awaited is None else [one for one in coming if one in awaited]
            if not left or asyncio.get_running_loop().time() > give_up:
                break
            await asyncio.sleep(_LOOK_SECONDS)
        self._table.reread(newer)

    async def _find(self, vfs: Iterable[PciAddress]) -> dict[PciAddress, Netdev]:
        """Read netdevs, waiting once for all that are just coming; what has not come is left out."""
        left, found = set(vfs), dict[PciAddress, Netdev]()
        give_up = asyncio.get_running_loop().time() + self._seconds
        while True:
            found |= {vf: netdev for vf in left if (netdev := self._sysfs.netdev(vf)) is not None}
            left -= found.keys()
            if not left or asyncio.get_running_loop().time() >= give_up:
                return found
            await asyncio.sleep(_LOOK_SECONDS)
