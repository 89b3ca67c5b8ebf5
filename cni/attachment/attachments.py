"""The rails of sandboxes: plan, record, apply, and take back.

Nobody but this, and `cni.attachment.netdev_return` and `cni.recovery.record_repair` for it, changes table, journal and kernel. Which sandboxes are dead, and
when that is looked at, is told by `cni.recovery.sweep`.
"""

import asyncio
import logging
import threading
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from errno import ENODEV
from functools import partial

from cni import host_delegates
from cni.attachment import ipam_plugin, ports
from cni.attachment.claims import Claims, owner_of
from cni.attachment.gratuitous_arp import GratuitousArp
from cni.attachment.journal import Journal
from cni.attachment.local_ipam import LocalIpam
from cni.attachment.netdev_lookup import NetdevLookup
from cni.attachment.netdev_return import NodeNetdevs
from cni.cancellation import to_the_end, until_stopped
from cni.host import lock
from cni.host.chain import Primary
from cni.host_paths import HostPaths
from cni.locks import PerKey
from cni.recovery.record_repair import RecordRepair
from cni.request import Request, primary_as_recorded
from cni.timing import stage
from kernel import perform
from kernel.host_process import Terms
from kernel.netlink.sandbox_links import link_states
from kernel.netns import NetnsIdentity, opened
from kernel.sysfs import Sysfs
from vf import plan, sandbox_difference
from vf.address import PciAddress
from vf.errors import NotReady
from vf.inventory import Inventory, RdmaDevice
from vf.network import Network, Networks, PluginIpam
from vf.record import Ipam, Netns, Pod, Record
from vf.steps import Given
from vf.table import Owner, VfTable

_log = logging.getLogger(__name__)
# A real kernel's sysfs shows a moved netdev at once, udev renames it within a second, a driver that is just being
# bound takes up to two (reference measurements of mlx5: 0.3 to 0.7 s).
_NETDEV_SECONDS = 2.0


class Attachments:
    """Attach and detach the VFs of sandboxes. Runs on the event loop; what blocks goes to threads."""

    def __init__(self, table: VfTable, journal: Journal, sysfs: Sysfs, networks: Networks, host: HostPaths) -> None:
        self._table = table
        self._journal = journal
        self._sysfs = sysfs
        self._networks = networks
        self._host = host
        self._claims = Claims(table, host.wait_seconds)
        self._netdevs = NetdevLookup(table, sysfs, _NETDEV_SECONDS)
        self._addresses = LocalIpam(host.flannel)
        self._announcements = GratuitousArp(host.root)
        self.one_at_a_time = PerKey()  # requests and the sweep: one of them at a time for each sandbox
        self.home = NodeNetdevs(table, sysfs, self._netdevs, host.root)
        self.adoption = RecordRepair(table, journal, self._claims, self.home, host, self.one_at_a_time)
        self.taken_back: set[PciAddress] = set()  # free VFs whose last sandbox has surely ended

    def attached(self, vf: PciAddress) -> Owner | None:
        """Tell which sandbox has a VF as a finished attachment; None while it is planned, being taken back, or free."""
        record = self._journal.holder(vf)
        return owner_of(record) if record is not None and record.stage == "attached" else None

    @property
    def inventory(self) -> Inventory:
        """The facts as last read."""
        return self._table.inventory

    def record(self, key: str) -> Record | None:
        """Find what `<container id>@<ifname>` has."""
        return self._journal.get(key)

    def records(self) -> Iterable[Record]:
        """Give every record, as of now."""
        return self._journal.records()

    def adopted(self, netns: Netns | None, ifname: str) -> Record | None:
        """Find the record that was made from what a living namespace has, for one attachment of it alone (CNI_IFNAME)."""
        if netns is None:
            return None
        records = (record for record in self._journal.records() if record.adopted and record.ifname == ifname)
        return next((record for record in records if record.netns[1:] == netns[1:]), None)

    def age(self, record: Record) -> float:
        """Give how many seconds ago a record was written, or read at start."""
        return self._journal.age(record)

    def restore(self) -> None:
        """Own again what the journal says, at start and before anything else."""
        for record in self._journal.records():
            self._claims.own(record)

    def withhold(self, reasons: Mapping[PciAddress, str]) -> None:
        """Say why some VFs must not be given out; of all others nothing is said any more."""
        self._table.withhold(reasons)

    def permit(self, pod: Pod, resources: Collection[str]) -> None:
        """Make sure that the pod's namespace may use the pools that its devices are of.

        Raises:
            NotPermitted: it may not.
        """
        self._networks.permit(pod.namespace, resources)

    async def plan(self, request: Request, vfs: tuple[PciAddress, ...], primary: Primary) -> Record:
        """Claim the VFs, decide what the sandbox gets and write it down; nothing in the kernel has changed after it.

        Raises:
            NotReady: a VF is still in a dying sandbox, or this sandbox has a record already. NotOurs: no VF of this node.
            Unusable: it has no netdev or no GUID. NotPermitted, Misconfigured: as `Networks.choose`; the MTU is larger
                than the PF's. NoAddress, Misconfigured: as `LocalIpam.give`.
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
        await self._claims.claim(vfs, owner)
        self.taken_back.difference_update(vfs)
        try:
            await self._netdevs.reread(vfs)
            await self.home.rename(vfs)
            assigned = plan.assign(self._table.inventory, vfs)
            netdevs = {one.vf.address: await self._netdevs.get(one.vf.address) for one in assigned}
            given = self._addresses.give(chosen, assigned, self._table.inventory, self._journal)
            mtus = {vf: self._netdevs.mtu(chosen.network, vf, netdev) for vf, netdev in netdevs.items()}
            record = Record(
                owner.container_id,
                owner.ifname,
                netns,
                request.pod,
                "planned",
                plan.attachments(assigned, netdevs, mtus, given),
                primary_as_recorded(primary, request.conf.runtime_config),
                chosen.network.name,
                _ipam(request, chosen.network, primary, assigned),
                self._host.boot,
            )
            self._journal.write(record)
        except BaseException:
            self._claims.release(vfs, owner)
            raise
        return record

    def address(self, record: Record, given: Mapping[str, Given]) -> Record:
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
            OSError: what the kernel refused. Unusable: a VF has no netdev any more. NotReady: it went away just then, or
                the namespace did.
            PortInactive: the record's VFs are in the sandbox, and the fabric did not make one's port active in time, or
                not a member of the network's partition (Unusable).
        """
        if netns_fd is None:
            raise NotReady(f"sandbox {record.key} has no network namespace any more")
        network = self._networks.by_name[record.network]
        netdevs = {one.vf: await self._netdevs.get(one.vf) for one in record.attachments}
        steps = plan.attach(record.attachments, netdevs)
        with stage("kernel"):
            try:
                await to_the_end(asyncio.to_thread(perform.attach, steps, netns_fd, self._host.root))
            except OSError as error:
                if error.errno != ENODEV:
                    raise
                # As a driver that is bound anew takes its netdev away: the next try finds another, or says that there is none.
                raise NotReady(f"a VF's netdev went away while it was attached: {error.strerror}") from error
        with stage("port"):
            await ports.wait(network, record.attachments, self._sysfs)

    def confirm(self, record: Record) -> None:
        """Write down that all of an ADD is done: from here on its containers may start."""
        self._journal.write(replace(record, stage="attached"))

    def announce(self, record: Record) -> None:
        """Have the neighbours told of the addresses of attached rails, as soon as there is a carrier; nobody waits for it."""
        seconds = self._networks.by_name[record.network].wait
        self._announcements.begin(record, seconds, lambda: self.attached(record.attachments[0].vf) == owner_of(record))

    async def difference(self, record: Record, netns: Netns | None, netns_fd: int | None) -> str | None:
        """Compare a sandbox with its record; gives the first difference in words, None if there is none.

        `netns` names the namespace that `netns_fd` is open on; both are None if it is gone.

        Raises:
            OSError: the kernel does not tell.
        """
        wrong = sandbox_difference.of_sandbox(record, netns)
        if wrong is not None or netns_fd is None:
            return wrong
        vfs = tuple(one.vf for one in record.attachments)
        states = await to_the_end(asyncio.to_thread(link_states, vfs, netns_fd))
        found = ((one, states.get(one.vf), self._rdma(one.vf)) for one in record.attachments)
        return next(filter(None, (sandbox_difference.of_rail(*each) for each in found)), None)

    def _rdma(self, vf: PciAddress) -> RdmaDevice | None:
        known = self._table.inventory.vf(vf)
        return None if known is None else self._sysfs.reread(known).rdma

    async def detach(self, record: Record, netns_fd: int | None) -> Record:
        """Take everything back and free the VFs; gives the record that is left, which `forget` removes.

        Idempotent: what is gone is fine, and what belongs to another sandbox by now is left alone. `netns_fd` may be
        None, or of another namespace: then the recorded one is opened, if it lives.

        Raises:
            OSError: what the kernel refused. The record stays for another try.
        """
        detaching = replace(record, stage="detaching")
        self._journal.write(detaching)
        owner = owner_of(record)
        ours = tuple(one for one in record.attachments if self._table.owner(one.vf) in (None, owner))
        for one in ours:  # nobody is given it while it is looked for everywhere
            self._table.claim(one.vf, owner)
        back = vfs = tuple(one.vf for one in ours)
        if not self._host.is_of_an_older_boot(record):  # else its namespace is gone, and its number may be another's
            back = await self.home.take_back(record.netns, ours, netns_fd)
        await self._netdevs.reread(vfs, awaited=back)
        # No await from here on: a record without VFs and VFs without an owner are one change.
        left = replace(detaching, attachments=())
        self._journal.write(left)
        self._claims.release(vfs, owner)
        self.taken_back.update(vfs)
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
            await until_stopped(partial(self._tell_ipam, left, left.ipam))
        self.forget(left)

    def _tell_ipam(self, left: Record, plugin: Ipam, stopped: threading.Event) -> None:
        """Run its DEL; not for the event loop's thread, nor is the lock, whose holders are looked for in all of /proc."""
        path = str(self._host.locks / left.key)
        held = lock.acquire(path, wait_seconds=0)
        try:
            terms = Terms(self._host.delegate_seconds, stopped, (held,))
            host_delegates.drive(ipam_plugin.delete(plugin), left, plugin.path, self._host.root, terms)
        finally:
            lock.remove(path, held)

    def namespace_is_gone(self, record: Record) -> bool:
        """Tell whether a sandbox's namespace does not exist any more, or is another one by now.

        Raises:
            OSError: it cannot be told.
        """
        if self._host.is_of_an_older_boot(record):
            return True
        expected = NetnsIdentity(record.netns.dev, record.netns.inode)
        with opened(self._host.root, record.netns.path, expected) as fd:
            return fd is None


def _ipam(request: Request, network: Network, primary: Primary, assigned: Iterable[plan.Assigned]) -> Ipam | None:
    if not isinstance(network.ipam, PluginIpam):
        return None
    ifnames, path = tuple(one.ifname for one in assigned), ":".join(request.environment.path)
    return ipam_plugin.as_recorded(network.name, network.ipam, primary.version, ifnames, path)
