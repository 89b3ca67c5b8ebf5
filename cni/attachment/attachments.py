"""Attachments of VFs to sandboxes: plan, record, attach, confirm, detach.

`cni.recovery` decides when a sandbox that sent no DEL is taken back.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from errno import EIO, ENODEV
from functools import partial
from pathlib import Path

from cni import primary_configuration
from cni.attachment import ipam_plugin, port_wait
from cni.attachment.gratuitous_arp import GratuitousArp
from cni.attachment.host_netdev_lookup import NetdevLookup
from cni.attachment.ipam_release_by_daemon import IpamRelease
from cni.attachment.journal import Journal
from cni.attachment.local_ipam import LocalIpam
from cni.attachment.netdev_return import NodeNetdevs
from cni.attachment.vf_reassignment import Claims, owner_of
from cni.host.chain import Primary
from cni.request import CniRequest
from cni.timing import timed
from railnet.errors import NotReady
from railnet.kernel import perform
from railnet.kernel.inventory import card_of, reread_vfs
from railnet.kernel.netlink.sandbox_link_state import link_states
from railnet.kernel.sysfs.functions import Sysfs
from railnet.vf import arp_and_source_routing, attachment_plan, sandbox_difference
from railnet.vf.attachment_plan import Assigned
from railnet.vf.inventory import Netdev, RdmaDevice
from railnet.vf.pci_address import PciAddress
from railnet.vf.permitted_networks import Network, Networks, NoIpam, PluginIpam, SliceIpam
from railnet.vf.record import Netns, Record, RecordedIpam, SandboxPod
from railnet.vf.restored_link_settings import Settings
from railnet.vf.steps import Given
from railnet.vf.vf_table import Owner, VfTable

_WAITS = (
    "the pod waits for its address on network {!r}, which railnet-controllers gives to its rank; look at the events of the pod and of its "
    'job, and whether Deployment railnet-controllers runs (a pod of no training job needs the label railnet.io/net1: "true")'
)


class Attachments:
    """Attach VFs to sandboxes and detach them. Runs on the event loop; blocking work goes to threads.

    `root` is where the host's mount namespace is seen; `boot` is the present boot.
    """

    def __init__(  # noqa: PLR0913 - composed once
        self,
        *,
        table: VfTable,
        journal: Journal,
        networks: Networks,
        claims: Claims,
        netdevs: NetdevLookup,
        node_netdevs: NodeNetdevs,
        local_ipam: LocalIpam,
        ipam_release: IpamRelease,
        sysfs: Sysfs,
        root: Path,
        boot: str,
    ) -> None:
        self._table = table
        self._journal = journal
        self._networks = networks
        self._claims = claims
        self._netdevs = netdevs
        self._node_netdevs = node_netdevs
        self._local_ipam = local_ipam
        self._ipam_release = ipam_release
        self._sysfs = sysfs
        self._root = root
        self._boot = boot
        self._announcements = GratuitousArp(root)
        # Settings of netdevs that were attached and are not confirmed, by the record's key: no other write of the record for them.
        self._before: dict[str, Mapping[PciAddress, Settings]] = {}

    def attached(self, vf: PciAddress) -> Owner | None:
        """Return the sandbox that a VF is attached to; None while it is being attached or taken back, or is free."""
        record = self._journal.holder(vf)
        return owner_of(record) if record is not None and record.stage == "attached" else None

    def record(self, key: str) -> Record | None:
        """Find the record of `<container id>@<ifname>`."""
        return self._journal.get(key)

    def rebuilt(self, netns: Netns | None, ifname: str) -> Record | None:
        """Find the rebuilt record of a namespace, for the attachment with this CNI_IFNAME."""
        return self._journal.rebuilt(netns, ifname)

    def permit(self, pod: SandboxPod, resources: Collection[str]) -> None:
        """Make sure that the pod's namespace may use the pools of the pod's devices.

        Raises:
            NotPermitted: it may not.
        """
        self._networks.permit(pod.namespace, resources)

    async def plan(self, request: CniRequest, vfs: tuple[PciAddress, ...], primary: Primary) -> Record:
        """Claim the VFs, decide what the sandbox gets, and write the record; the kernel is not changed yet.

        Raises:
            NotReady: a VF is still in another sandbox, which is being taken down, or this sandbox has a record already; or the
                controllers have not written the pod's addresses yet: the runtime's next ADD has the pod's newer annotations.
            NotOurs: a device is no VF of this node. Unusable: a VF has no netdev or no GUID. NotPermitted, Misconfigured: as
                `Networks.choose`; or the MTU is larger than the PF's. NoAddress, Misconfigured: as `LocalIpam.give`.
        """
        netns = request.netns
        if netns is None:
            raise NotReady(f"sandbox {request.environment.key} has no network namespace any more")
        if self._journal.get(request.environment.key) is not None:
            raise NotReady(
                f"sandbox {request.environment.key} still has a record; the runtime must DEL it before it ADDs again"
            )
        chosen = self._networks.choose(request.pod.namespace, request.conf.annotations, len(vfs))
        if chosen.waits:
            raise NotReady(_WAITS.format(chosen.network.name))
        owner = Owner(request.environment.container_id, request.environment.ifname, request.pod.uid)
        await self._claims.claim(vfs, owner)
        try:
            await self._netdevs.reread(vfs)
            for vf in vfs:
                self._netdevs.require_readable(vf)
            await self._node_netdevs.rename(vfs)
            assigned = await self._assigned(vfs)
            netdevs = {vf: self._netdevs.require_known(vf) for vf in (assignment.vf.address for assignment in assigned)}
            given = self._local_ipam.give(chosen, assigned, self._table.inventory, self._journal)
            mtus = {vf: self._netdevs.mtu(chosen.network, vf, netdev) for vf, netdev in netdevs.items()}
            record = Record(
                owner.container_id,
                owner.ifname,
                netns,
                request.pod,
                "planned",
                arp_and_source_routing.keep_apart(
                    attachment_plan.attachments(assigned, netdevs, mtus, given), chosen.network.routing
                ),
                primary_configuration.as_recorded(primary, request.conf.runtime_config),
                chosen.network.name,
                _ipam(request, chosen.network, primary, assigned),
                self._boot,
            )
            self._journal.write(record)
        except BaseException:
            self._claims.release(vfs, owner)
            raise
        return record

    async def _assigned(self, vfs: tuple[PciAddress, ...]) -> tuple[Assigned, ...]:
        """Assign the rails. A netdev that comes only now is renamed, too: the namespace of the last pod may end at this moment.

        Raises:
            NotReady, Unusable, OSError: as `NetdevLookup.get` and `NodeNetdevs.rename`.
        """
        assigned = attachment_plan.assign(self._table.inventory, vfs)
        late = tuple(assignment.vf.address for assignment in assigned if assignment.vf.netdev is None)
        if not late:
            return assigned
        for vf in late:
            await self._netdevs.get(vf)
        await self._netdevs.reread(late)
        await self._node_netdevs.rename(late)
        return attachment_plan.assign(self._table.inventory, vfs)

    def record_addresses(self, record: Record, given: Mapping[str, Given]) -> Record:
        """Write the addresses that an IPAM plugin gave, by interface name, to the record; return the new record."""
        attachments = tuple(
            replace(attachment, addresses=given[attachment.ifname].addresses, routes=given[attachment.ifname].routes)
            for attachment in record.attachments
        )
        routing = self._networks.by_name[record.network].routing
        addressed = replace(record, attachments=arp_and_source_routing.keep_apart(attachments, routing))
        self._journal.write(addressed)
        return addressed

    async def attach(self, record: Record, netns_fd: int | None) -> None:
        """Change the kernel as the record plans; a failure undoes every change. The record stays planned until `confirm`.

        Raises:
            OSError: what the kernel refused. Unusable: a VF has no netdev any more. NotReady: a VF's netdev went away during
                the attach, or the namespace did.
            PortInactive: the VFs are in the sandbox, and the fabric did not make a port active in time. Unusable: as before,
                and the port is no member of the network's partition.
        """
        if netns_fd is None:
            raise NotReady(f"sandbox {record.key} has no network namespace any more")
        network = self._networks.by_name[record.network]
        with timed("kernel"):
            self._before[record.key] = await self._attach_known(record, netns_fd)
        with timed("port"):
            card = partial(card_of, self._table.inventory)
            await port_wait.wait(network, record.attachments, self._sysfs, card)

    async def _attach_known(self, record: Record, netns_fd: int) -> Mapping[PciAddress, Settings]:
        """Attach the netdevs that the table knows since the plan; if one has gone since then, those that there are now.

        A driver that is bound again takes its netdev away and makes another one.
        """
        known = {attachment.vf: self._netdevs.known(attachment.vf) for attachment in record.attachments}
        netdevs = {vf: netdev for vf, netdev in known.items() if netdev is not None}
        if len(netdevs) == len(known):
            try:
                return await self._attach(record, netns_fd, netdevs)
            except OSError as error:
                if error.errno != ENODEV:
                    raise
                if getattr(error, "__notes__", None):  # its undo failed, so a netdev may be in the sandbox
                    raise _gone(error) from error
        netdevs = {attachment.vf: await self._netdevs.get(attachment.vf) for attachment in record.attachments}
        try:
            return await self._attach(record, netns_fd, netdevs)
        except OSError as error:
            if error.errno != ENODEV:
                raise
            raise _gone(error) from error

    async def _attach(
        self, record: Record, netns_fd: int, netdevs: Mapping[PciAddress, Netdev]
    ) -> Mapping[PciAddress, Settings]:
        steps = attachment_plan.attach(record.attachments, netdevs)
        return await self._node_netdevs.do(
            record.attachments, partial(perform.attach, steps, netns_fd, self._root, self._sysfs)
        )

    def confirm(self, record: Record) -> None:
        """Write to the record that the ADD is done: after this the pod's containers may start."""
        self._journal.write(replace(self._with_settings(record), stage="attached"))

    def _with_settings(self, record: Record) -> Record:
        """Return a record with the settings that its netdevs had before they were attached, as far as they are known."""
        before = self._before.pop(record.key, {})
        return replace(record, attachments=attachment_plan.with_settings(record, before))

    def announce(self, record: Record) -> None:
        """Begin to announce the addresses of attached rails to their neighbours; the ADD does not wait for it."""
        seconds = self._networks.by_name[record.network].wait
        self._announcements.begin(record, seconds, lambda: self.attached(record.attachments[0].vf) == owner_of(record))

    async def difference(self, record: Record, netns: Netns | None, netns_fd: int | None) -> str | None:
        """Compare a sandbox with its record; return the first difference in words, None if there is none.

        `netns` names the namespace that `netns_fd` is open on; both are None if it is gone.

        Raises:
            OSError: the kernel does not answer.
        """
        wrong = sandbox_difference.of_sandbox(record, netns)
        if wrong is not None or netns_fd is None:
            return wrong
        vfs = tuple(attachment.vf for attachment in record.attachments)
        states = await self._node_netdevs.do(record.attachments, partial(link_states, vfs, netns_fd))
        rails = [
            (attachment, states.get(attachment.vf), await self._rdma(attachment.vf))
            for attachment in record.attachments
        ]
        return next(filter(None, (sandbox_difference.of_rail(*rail) for rail in rails)), None)

    async def _rdma(self, vf: PciAddress) -> RdmaDevice | None:
        known = self._table.inventory.vf(vf)
        if known is None:
            return None
        now = (await reread_vfs(self._sysfs, (known,)))[vf]
        if now.fault is not None:
            raise OSError(EIO, f"VF {vf} cannot be compared with its record: {now.fault}")
        return now.rdma

    def begin_detach(self, record: Record) -> Record:
        """Write to the record that its VFs are being taken back; return that record. From now on no container starts with them.

        A record that says so already stays as it is: only the first time it is known whether the ADD was done.
        """
        if record.stage == "detaching":
            return record
        detaching = replace(self._with_settings(record), stage="detaching")
        self._journal.write(detaching)
        return detaching

    def addresses_may_be_elsewhere(self, record: Record) -> bool:
        """Return whether another pod, perhaps of another node, may get the record's addresses while this node still has the record.

        The addresses of the node's slice are this node's: they are free with the record. A program that gives other addresses does not ask this node.
        """
        network = self._networks.by_name.get(record.network)
        of_this_node = network is not None and isinstance(network.ipam, SliceIpam | NoIpam)
        return any(attachment.addresses for attachment in record.attachments) and not of_this_node

    async def detach(self, record: Record, netns_fd: int | None) -> Record:
        """Take all VFs back and release them; return the record that is left, which `forget` removes.

        Idempotent: a VF that is back already is fine, and a VF that another sandbox has now is left alone. `netns_fd` may be
        None, or of another namespace: then the recorded namespace is opened, if it is alive.

        Raises:
            OSError: what the kernel refused. The record stays for another try.
        """
        detaching = self.begin_detach(record)
        vfs = await self._return_netdevs(detaching, netns_fd)
        # No await from here on: a record without VFs and VFs without an owner are one change.
        left = replace(detaching, attachments=())
        self._journal.write(left)
        self._claims.release_ended(vfs, owner_of(record))
        self._node_netdevs.withhold_awaited()
        return left

    async def detach_and_forget(self, detaching: Record, netns_fd: int | None) -> None:
        """Do what `detach` and then `forget` do, with one write less: for a record that only its VFs still need.

        Raises:
            OSError: as `detach`.
        """
        vfs = await self._return_netdevs(detaching, netns_fd)
        # No await from here on, as in `detach`.
        self._journal.remove(detaching)
        self._claims.release_ended(vfs, owner_of(detaching))
        self._node_netdevs.withhold_awaited()

    async def _return_netdevs(self, detaching: Record, netns_fd: int | None) -> tuple[PciAddress, ...]:
        """Return which VFs the sandbox had, when their netdevs are on the node again."""
        vfs = self._claims.own_unless_owned(detaching)  # no other sandbox gets them while their netdevs are searched
        ours = tuple(attachment for attachment in detaching.attachments if attachment.vf in vfs)
        moved, back = dict[PciAddress, Netdev](), vfs
        # A namespace of an older boot is gone; another may have its number.
        if not detaching.is_of_older_boot(self._boot):
            moved, back = await self._node_netdevs.take_back(detaching.netns, ours, netns_fd)
        self._netdevs.note(moved)
        unsure = [vf for vf in vfs if vf not in moved or not self._netdevs.is_whole(vf)]
        await self._netdevs.reread(unsure, awaited=(*moved, *back))
        return vfs

    def forget(self, record: Record) -> None:
        """Remove a record whose VFs are all back and whose addresses are released."""
        self._journal.remove(record)

    async def take_back(self, record: Record) -> None:
        """Take everything of a sandbox back without its executable, and remove the record.

        Raises:
            OSError: as `detach`. CniError: as `IpamRelease.finish`. The record stays for another try.
        """
        await self._ipam_release.finish(await self.detach(record, None))


def _gone(error: OSError) -> NotReady:
    notes = "".join(f"; {note}" for note in getattr(error, "__notes__", ()))
    return NotReady(f"a VF's netdev went away while it was attached: {error.strerror}{notes}")


def _ipam(
    request: CniRequest, network: Network, primary: Primary, assigned: Iterable[attachment_plan.Assigned]
) -> RecordedIpam | None:
    if not isinstance(network.ipam, PluginIpam):
        return None
    ifnames, path = tuple(assignment.ifname for assignment in assigned), ":".join(request.environment.path)
    return ipam_plugin.as_recorded(network.name, network.ipam, primary.version, ifnames, path)
