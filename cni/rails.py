"""The rails of sandboxes: plan, record, apply, and take back. The one owner of table, journal and kernel changes."""

import asyncio
import logging
from collections.abc import Coroutine, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from cni.addresses import SliceAddresses
from cni.journal import Journal
from cni.locks import PerKey
from cni.request import Request
from kernel import perform
from kernel.netns import NetnsIdentity, identity, opened
from kernel.sysfs import Sysfs
from vf import plan
from vf.address import PciAddress
from vf.errors import Misconfigured, NotOurs, NotReady, PortInactive, RailnetError, Unusable
from vf.function import Netdev
from vf.record import Attachment, Record
from vf.table import Owner, VfTable

_log = logging.getLogger(__name__)
# A real kernel's sysfs shows a moved netdev at once, udev renames it within a second, a driver that is just being
# bound takes up to two (reference measurements of mlx5: 0.3 to 0.7 s).
_NETDEV_SECONDS = 2.0
_LOOK_SECONDS = 0.01
_ACTIVE = "4: ACTIVE"  # /sys/class/infiniband/<dev>/ports/1/state


@dataclass(frozen=True, slots=True)
class Network:
    """What net1 is like: its MTU in bytes, or the PF's, where its addresses come from, how long its port may take."""

    mtu: int | Literal["pf"]
    addresses: SliceAddresses
    port_seconds: float


@dataclass(frozen=True, slots=True)
class Host:
    """Where the host's mount namespace is seen, for records' netns paths, and how long an ADD waits for a DEL."""

    root: Path
    wait_seconds: float


class Rails:
    """Attach and detach the VFs of sandboxes. Runs on the event loop; what blocks goes to threads."""

    def __init__(self, table: VfTable, journal: Journal, sysfs: Sysfs, network: Network, host: Host) -> None:
        self._table = table
        self._journal = journal
        self._sysfs = sysfs
        self._network = network
        self._host = host
        self.one_at_a_time = PerKey()  # requests and the sweep: one of them at a time for each sandbox

    def attached(self, vf: PciAddress) -> Owner | None:
        """Tell which sandbox has a VF as a finished attachment; None while it is planned, being taken back, or free."""
        record = self._journal.holder(vf)
        return _owner(record) if record is not None and record.stage == "attached" else None

    def record(self, key: str) -> Record | None:
        """Find what `<container id>@<ifname>` has."""
        return self._journal.get(key)

    def restore(self) -> None:
        """Own again what the journal says, at start and before anything else."""
        for record in self._journal.records():
            for attachment in record.attachments:
                try:
                    self._table.claim(attachment.vf, _owner(record))
                except NotOurs as error:
                    _log.error("sandbox %s: %s", record.key, error)

    async def plan(self, request: Request, vfs: tuple[PciAddress, ...], primary: dict[str, object]) -> Record:
        """Claim the VFs, decide what the sandbox gets and write it down; nothing in the kernel has changed after it.

        Raises:
            NotReady: a VF is still in a dying sandbox, or this sandbox has a record already. NotOurs: no VF of this node.
            Unusable: it has no netdev or no GUID. NoAddress, Misconfigured: as `SliceAddresses.give`.
        """
        netns = request.netns
        if netns is None:
            raise NotReady(f"sandbox {request.environment.key} has no network namespace any more")
        if self._journal.get(request.environment.key) is not None:
            raise NotReady(
                f"sandbox {request.environment.key} still has a record; the runtime must DEL it before it ADDs again"
            )
        owner = Owner(request.environment.container_id, request.environment.ifname, request.pod.uid)
        await self._claim(vfs, owner)
        try:
            await self._reread(vfs)
            assigned = plan.assign(self._table.inventory, vfs)
            netdevs = {one.vf.address: await self._netdev(one.vf.address) for one in assigned}
            addresses = self._network.addresses.give(assigned, self._table.inventory, self._journal)
            attachments = plan.attachments(assigned, netdevs, addresses)
            record = Record(owner.container_id, owner.ifname, netns, request.pod, "planned", attachments, primary)
            self._journal.write(record)
        except BaseException:
            self._release(vfs, owner)
            raise
        return record

    async def attach(self, record: Record, netns_fd: int | None) -> None:
        """Make a planned record true; a failure leaves the kernel as it was. The record stays planned until `confirm`.

        Raises:
            OSError: what the kernel refused. Unusable: a netdev went away meanwhile. NotReady: the namespace did.
            Misconfigured: the MTU is larger than the PF's. PortInactive: the record's VFs are
                in the sandbox, and the fabric did not make one's port active in time.
        """
        if netns_fd is None:
            raise NotReady(f"sandbox {record.key} has no network namespace any more")
        netdevs = {one.vf: await self._netdev(one.vf) for one in record.attachments}
        mtus = {vf: self._mtu(vf, netdev) for vf, netdev in netdevs.items()}
        steps = plan.attach(record.attachments, netdevs, mtus)
        await _to_the_end(asyncio.to_thread(perform.attach, steps, netns_fd))
        await self._await_ports(record.attachments)

    async def _await_ports(self, attachments: tuple[Attachment, ...]) -> None:
        """Wait for the ports of VFs that have an RDMA device: the subnet manager notices them in its own time."""
        give_up = asyncio.get_running_loop().time() + self._network.port_seconds
        for one in attachments:
            while one.rdma is not None and not self._port_is_active(one.vf):
                if asyncio.get_running_loop().time() > give_up:
                    raise PortInactive(
                        f"the port of VF {one.vf} ({one.rdma}) is not ACTIVE after {self._network.port_seconds:g} s: does a subnet "
                        "manager with virtualization run on its fabric? kubelet tries again"
                    )
                await asyncio.sleep(_LOOK_SECONDS)

    def _port_is_active(self, vf: PciAddress) -> bool:
        port = self._sysfs.port(vf)
        return port is not None and port.state == _ACTIVE

    def confirm(self, record: Record) -> None:
        """Write down that all of an ADD is done: from here on its containers may start."""
        self._journal.write(replace(record, stage="attached"))

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
        """Remove a record whose rails are all back."""
        self._journal.remove(record)

    async def sweep(self, *, at_start: bool) -> None:
        """Take back what no sandbox has any more: its namespace is gone. At start also what was begun and not finished.

        A record that is not `attached` here is nobody's work in progress, since the sandbox's lock is held. One that
        cannot be taken back now stays for the next sweep.
        """
        for record in self._journal.records():
            if self.one_at_a_time.is_held(record.key):
                continue  # a request is at it
            async with self.one_at_a_time.held(record.key):
                if self._journal.get(record.key) is record:
                    await self._sweep(record, at_start)

    async def _sweep(self, record: Record, at_start: bool) -> None:
        pod = record.pod
        try:
            if (at_start and record.stage != "attached") or self._namespace_is_gone(record):
                _log.warning("taking back what sandbox %s of pod %s/%s left", record.key, pod.namespace, pod.name)
                self.forget(await self.detach(record, None))
        except (OSError, RailnetError) as error:
            _log.error("sandbox %s: %s; the next sweep tries again", record.key, error)

    def _namespace_is_gone(self, record: Record) -> bool:
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
            await _to_the_end(asyncio.to_thread(perform.detach, plan.move_out(attachments), netns_fd))
        returned = {}
        for one in attachments:
            if self._has_driver(one.vf) and (netdev := await self._find_netdev(one.vf)) is not None:
                returned[one.vf] = netdev
        renames = plan.rename(attachments, returned)
        await _to_the_end(asyncio.to_thread(perform.detach, renames, None))

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

    def _mtu(self, vf: PciAddress, netdev: Netdev) -> int:
        found = self._table.inventory.vf(vf)
        pf = None if found is None else self._table.inventory.pf(found.pf)
        limit = netdev.mtu if pf is None or pf.netdev is None else pf.netdev.mtu
        if self._network.mtu == "pf":
            return limit
        if self._network.mtu > limit:
            raise Misconfigured(f"networks.default.mtu is {self._network.mtu}, but the PF of VF {vf} has {limit}")
        return self._network.mtu

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
        self._table.refresh(self._table.inventory.with_vfs(newer))


async def _to_the_end(work: Coroutine[Any, Any, None]) -> None:
    """Await work that cannot be stopped half-way: a cancellation is raised only after it has ended."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait((task,))
        raise


def _owner(record: Record) -> Owner:
    return Owner(record.container_id, record.ifname, record.pod.uid)
