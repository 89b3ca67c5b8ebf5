"""The rails of sandboxes: plan, record, apply, and take back. The one owner of table, journal and kernel changes.

Which sandboxes are dead, and when that is looked at, is told by `cni.recovery`.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from cni import ipam, on_host, ports
from cni.addresses import Addresses
from cni.announcements import Announcements
from cni.host import lock
from cni.host.chain import Primary
from cni.journal import Journal
from cni.locks import PerKey
from cni.request import Request, primary_as_recorded
from cni.stages import stage
from cni.uncut import to_the_end
from kernel import perform
from kernel.link_state import link_states
from kernel.netns import NetnsIdentity, identity, opened
from kernel.sysfs import Sysfs
from vf import difference, plan
from vf.address import PciAddress
from vf.errors import Misconfigured, NotOurs, NotReady, Unusable
from vf.function import Netdev, RdmaDevice
from vf.network import Network, Networks, PluginIpam
from vf.record import Attachment, Ipam, Netns, Record
from vf.table import Owner, VfTable

_log = logging.getLogger(__name__)
# A real kernel's sysfs shows a moved netdev at once, udev renames it within a second, a driver that is just being
# bound takes up to two (reference measurements of mlx5: 0.3 to 0.7 s).
_NETDEV_SECONDS = 2.0
_LOOK_SECONDS = 0.01


@dataclass(frozen=True, slots=True)
class Host:
    """Where the host's mount namespace is seen, and flannel's file; how long an ADD waits for a DEL; what a delegate may take.

    `locks` is the folder of the executables' locks.
    """

    root: Path
    flannel: Path
    wait_seconds: float
    delegate_seconds: float
    locks: Path = Path(lock.FOLDER)


class Rails:
    """Attach and detach the VFs of sandboxes. Runs on the event loop; what blocks goes to threads."""

    def __init__(self, table: VfTable, journal: Journal, sysfs: Sysfs, networks: Networks, host: Host) -> None:
        self._table = table
        self._journal = journal
        self._sysfs = sysfs
        self._networks = networks
        self._host = host
        self._addresses = Addresses(host.flannel)
        self._announcements = Announcements(host.root)
        self.one_at_a_time = PerKey()  # requests and the sweep: one of them at a time for each sandbox

    def attached(self, vf: PciAddress) -> Owner | None:
        """Tell which sandbox has a VF as a finished attachment; None while it is planned, being taken back, or free."""
        record = self._journal.holder(vf)
        return _owner(record) if record is not None and record.stage == "attached" else None

    def record(self, key: str) -> Record | None:
        """Find what `<container id>@<ifname>` has."""
        return self._journal.get(key)

    def records(self) -> Iterable[Record]:
        """Give every record, as of now."""
        return self._journal.records()

    def age(self, record: Record) -> float:
        """Give how many seconds ago a record was written, or read at start."""
        return self._journal.age(record)

    def restore(self) -> None:
        """Own again what the journal says, at start and before anything else."""
        for record in self._journal.records():
            for attachment in record.attachments:
                try:
                    self._table.claim(attachment.vf, _owner(record))
                except NotOurs as error:
                    _log.error("sandbox %s: %s", record.key, error)

    async def plan(self, request: Request, vfs: tuple[PciAddress, ...], primary: Primary) -> Record:
        """Claim the VFs, decide what the sandbox gets and write it down; nothing in the kernel has changed after it.

        Raises:
            NotReady: a VF is still in a dying sandbox, or this sandbox has a record already. NotOurs: no VF of this node.
            Unusable: it has no netdev or no GUID. NotPermitted, Misconfigured: as `Networks.choose`; the MTU is larger
                than the PF's. NoAddress, Misconfigured: as `Addresses.give`.
        """
        netns = request.netns
        if netns is None:
            raise NotReady(f"sandbox {request.environment.key} has no network namespace any more")
        if self._journal.get(request.environment.key) is not None:
            raise NotReady(
                f"sandbox {request.environment.key} still has a record; the runtime must DEL it before it ADDs again"
            )
        chosen = self._networks.choose(request.pod.namespace, request.conf.annotations, len(vfs))
        owner = Owner(request.environment.container_id, request.environment.ifname, request.pod.uid)
        await self._claim(vfs, owner)
        try:
            await self._reread(vfs)
            assigned = plan.assign(self._table.inventory, vfs)
            netdevs = {one.vf.address: await self._netdev(one.vf.address) for one in assigned}
            addresses = self._addresses.give(chosen, assigned, self._table.inventory, self._journal)
            mtus = {vf: self._mtu(chosen.network, vf, netdev) for vf, netdev in netdevs.items()}
            record = Record(
                owner.container_id,
                owner.ifname,
                netns,
                request.pod,
                "planned",
                plan.attachments(assigned, netdevs, mtus, addresses),
                primary_as_recorded(primary, request.conf.runtime_config),
                chosen.network.name,
                _ipam(request, chosen.network, primary, assigned),
            )
            self._journal.write(record)
        except BaseException:
            self._release(vfs, owner)
            raise
        return record

    def address(self, record: Record, given: Mapping[str, ipam.Given]) -> Record:
        """Write down what an IPAM plugin gave, by interface name; gives the record that says so."""
        attachments = tuple(
            replace(one, addresses=given[one.ifname].addresses, routes=given[one.ifname].routes)
            for one in record.attachments
        )
        addressed = replace(record, attachments=attachments)
        self._journal.write(addressed)
        return addressed

    async def attach(self, record: Record, netns_fd: int | None) -> None:
        """Make a planned record true; a failure leaves the kernel as it was. The record stays planned until `confirm`.

        Raises:
            OSError: what the kernel refused. Unusable: a netdev went away meanwhile. NotReady: the namespace did.
            PortInactive: the record's VFs are in the sandbox, and the fabric did not make one's port active in time, or
                not a member of the network's partition (Unusable).
        """
        if netns_fd is None:
            raise NotReady(f"sandbox {record.key} has no network namespace any more")
        network = self._networks.by_name[record.network]
        netdevs = {one.vf: await self._netdev(one.vf) for one in record.attachments}
        steps = plan.attach(record.attachments, netdevs)
        with stage("kernel"):
            await to_the_end(asyncio.to_thread(perform.attach, steps, netns_fd, self._host.root))
        with stage("port"):
            await ports.wait(network, record.attachments, self._sysfs)

    def confirm(self, record: Record) -> None:
        """Write down that all of an ADD is done: from here on its containers may start."""
        self._journal.write(replace(record, stage="attached"))

    def announce(self, record: Record) -> None:
        """Have the neighbours told of the addresses of attached rails, as soon as there is a carrier; nobody waits for it."""
        seconds = self._networks.by_name[record.network].wait
        self._announcements.begin(record, seconds, lambda: self.attached(record.attachments[0].vf) == _owner(record))

    async def difference(self, record: Record, netns: Netns | None, netns_fd: int | None) -> str | None:
        """Compare a sandbox with its record; gives the first difference in words, None if there is none.

        `netns` names the namespace that `netns_fd` is open on; both are None if it is gone.

        Raises:
            OSError: the kernel does not tell.
        """
        wrong = difference.of_sandbox(record, netns)
        if wrong is not None or netns_fd is None:
            return wrong
        vfs = tuple(one.vf for one in record.attachments)
        states = await to_the_end(asyncio.to_thread(link_states, vfs, netns_fd))
        found = ((one, states.get(one.vf), self._rdma(one.vf)) for one in record.attachments)
        return next(filter(None, (difference.of_rail(*each) for each in found)), None)

    def _rdma(self, vf: PciAddress) -> RdmaDevice | None:
        known = self._table.inventory.vf(vf)
        return None if known is None else self._sysfs.reread(known).rdma

    async def detach(self, record: Record, netns_fd: int | None) -> Record:
        """Take everything back and free the VFs; gives the record that is left, which `forget` removes.

        Idempotent: what is gone is fine. `netns_fd` may be None, or of another namespace: then the recorded one is
        opened, if it lives.

        Raises:
            OSError: what the kernel refused. The record stays for another try.
        """
        detaching = replace(record, stage="detaching")
        self._journal.write(detaching)
        expected = NetnsIdentity(record.netns.dev, record.netns.inode)
        if netns_fd is not None and identity(netns_fd) == expected:
            await self._take_back(detaching.attachments, netns_fd)
        else:
            with opened(self._host.root, record.netns.path, expected) as fd:
                await self._take_back(detaching.attachments, fd)
        vfs = tuple(one.vf for one in record.attachments)
        await self._reread(vfs)
        # No await from here on: a record without VFs and VFs without an owner are one change.
        left = replace(detaching, attachments=())
        self._journal.write(left)
        self._release(vfs, _owner(record))
        return left

    def forget(self, record: Record) -> None:
        """Remove a record whose rails are all back and whose IPAM plugin, if any, was told."""
        self._journal.remove(record)

    async def take_back(self, record: Record) -> None:
        """Take back the rails of a sandbox whose executable has gone away, or which has died itself.

        Raises:
            OSError: as `detach`. CniError: the IPAM plugin failed, or another one that was begun for this sandbox still runs.
                The record stays for another try.
        """
        await self.tell_ipam(await self.detach(record, None))

    async def tell_ipam(self, left: Record) -> None:
        """Have the plugin take its addresses back, once nothing that a killed executable began runs any more; then forget.

        Raises:
            CniError: the plugin failed, or something that was begun for this sandbox still runs. The record stays.
        """
        if left.ipam is not None:
            path = str(self._host.locks / left.key)
            held = lock.acquire(path, wait_seconds=0)
            try:
                root, seconds = self._host.root, self._host.delegate_seconds
                steps = ipam.delete(left.ipam)
                await to_the_end(asyncio.to_thread(on_host.drive, steps, left, left.ipam.path, root, seconds))
            finally:
                lock.remove(path, held)
        self.forget(left)

    def namespace_is_gone(self, record: Record) -> bool:
        """Tell whether a sandbox's namespace does not exist any more, or is another one by now.

        Raises:
            OSError: it cannot be told.
        """
        expected = NetnsIdentity(record.netns.dev, record.netns.inode)
        with opened(self._host.root, record.netns.path, expected) as fd:
            return fd is None

    async def _claim(self, vfs: tuple[PciAddress, ...], owner: Owner) -> None:
        """Claim all VFs or none, waiting for sandboxes that are being taken down.

        kubelet gives a device to the next pod before the last pod's DEL has begun.
        """
        changed = asyncio.Event()
        stop = self._table.observe(changed.set)
        try:
            async with asyncio.timeout(self._host.wait_seconds):
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

    def _claimed(self, vfs: tuple[PciAddress, ...], owner: Owner) -> bool:
        # Looked at first: to claim some and give them back would wake whoever waits for those, and they us.
        if any(self._table.owner(vf) not in (None, owner) for vf in vfs):
            return False
        for vf in vfs:
            self._table.claim(vf, owner)
        return True

    def _release(self, vfs: tuple[PciAddress, ...], owner: Owner) -> None:
        for vf in vfs:
            self._table.release(vf, owner)

    async def _take_back(self, attachments: tuple[Attachment, ...], netns_fd: int | None) -> None:
        """Move the netdevs out; then, as they have come back under whatever name, give them theirs.

        A netdev that does not come back (its driver was unbound, ib_ipoib unloaded) is gone, which is no failure: its
        VF is advertised as unhealthy until it has one again.
        """
        if netns_fd is not None:
            await to_the_end(asyncio.to_thread(perform.detach, plan.move_out(attachments), netns_fd))
        returned = {}
        for one in attachments:
            if self._has_driver(one.vf) and (netdev := await self._find_netdev(one.vf)) is not None:
                returned[one.vf] = netdev
        renames = plan.rename(attachments, returned)
        await to_the_end(asyncio.to_thread(perform.detach, renames, None))

    def _has_driver(self, vf: PciAddress) -> bool:
        found = self._table.inventory.vf(vf)
        return found is not None and self._sysfs.reread(found).driver is not None

    async def _netdev(self, vf: PciAddress) -> Netdev:
        netdev = await self._find_netdev(vf)
        if netdev is None:
            raise Unusable(f"VF {vf} has no netdev on this node: is its driver bound and ib_ipoib loaded?")
        return netdev

    async def _find_netdev(self, vf: PciAddress) -> Netdev | None:
        """Read a VF's netdev, waiting a little for one that is just coming."""
        give_up = asyncio.get_running_loop().time() + _NETDEV_SECONDS
        while (netdev := self._sysfs.netdev(vf)) is None and asyncio.get_running_loop().time() < give_up:  # noqa: ASYNC110 - sysfs tells nobody
            await asyncio.sleep(_LOOK_SECONDS)
        return netdev

    def _mtu(self, network: Network, vf: PciAddress, netdev: Netdev) -> int:
        found = self._table.inventory.vf(vf)
        pf = None if found is None else self._table.inventory.pf(found.pf)
        limit = netdev.mtu if pf is None or pf.netdev is None else pf.netdev.mtu
        if network.mtu == "pf":
            return limit
        if network.mtu > limit:
            raise Misconfigured(f"networks.{network.name}.mtu is {network.mtu}, but the PF of VF {vf} has {limit}")
        return network.mtu

    async def _reread(self, vfs: Iterable[PciAddress]) -> None:
        """Bring the table's facts about some free VFs up to date; a whole inventory is the resync's, not a request's.

        Looks again while a VF with a driver shows no netdev: it is being renamed just then, by us or by udev.
        """
        known = [vf for address in vfs if (vf := self._table.inventory.vf(address)) is not None]
        give_up = asyncio.get_running_loop().time() + _NETDEV_SECONDS
        while True:
            newer = {vf.address: self._sysfs.reread(vf) for vf in known}
            coming = any(vf.driver is not None and vf.netdev is None for vf in newer.values())
            if not coming or asyncio.get_running_loop().time() > give_up:
                break
            await asyncio.sleep(_LOOK_SECONDS)
        self._table.reread(newer)


def _ipam(request: Request, network: Network, primary: Primary, assigned: Iterable[plan.Assigned]) -> Ipam | None:
    if not isinstance(network.ipam, PluginIpam):
        return None
    ifnames, path = tuple(one.ifname for one in assigned), ":".join(request.environment.path)
    return ipam.as_recorded(network.name, network.ipam, primary.version, ifnames, path)


def _owner(record: Record) -> Owner:
    return Owner(record.container_id, record.ifname, record.pod.uid)
