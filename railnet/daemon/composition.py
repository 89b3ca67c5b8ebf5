"""The node daemon from its start to its end: inventory → journal → recover → provision → serve.

The parts that attach and recover are composed in `railnet.daemon.attachment_composition`.
"""

import asyncio
import logging
import os
import signal
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import AsyncExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple, Protocol

from cni.attachment.local_ipam import LocalIpam
from cni.delegate_slots import DelegateSlots
from cni.flannel_shortcut import FlannelDelegates
from cni.host.daemon import SOCKET
from cni.pod_devices import PodDevices
from cni.rail_observers import Observer
from cni.request_cancellation import TimeLimits
from cni.request_handler import RequestHandler
from cni.server import Server
from cni.verbs.verb_dependencies import Parts
from deviceplugin.devices import OfferedVf
from deviceplugin.pool_selection import Pool, assign
from deviceplugin.registration import Registration
from deviceplugin.service import PoolService
from railnet.configuration import Configuration
from railnet.daemon import allocated_vfs, attachment_composition, provisioning
from railnet.daemon.attachment_composition import NodeParts
from railnet.daemon.conflist.cni_folders_in_use import CniFoldersInUse
from railnet.daemon.conflist.keeper import ConflistKeeper
from railnet.daemon.dra import dra_composition
from railnet.daemon.dra.device_metadata import DeviceMetadata
from railnet.daemon.dra.resource_slices import NodeSlices
from railnet.daemon.host_network_pod_query import pods_on_host_network
from railnet.daemon.kubelet_folder import KubeletSearch
from railnet.daemon.memlock_limits import MemlockLimits
from railnet.daemon.metrics import Gauges, Metrics
from railnet.daemon.network_status_and_events import publishing
from railnet.daemon.node_object import rail_errors, rails_condition
from railnet.daemon.node_object.parts import NodeObject
from railnet.daemon.pf_ports_for_status import PfPortReads
from railnet.daemon.primary_gc_schedule import sweeping
from railnet.daemon.process.background_tasks import BackgroundTasks
from railnet.daemon.process.single_instance import alone
from railnet.daemon.process.threads import Threads
from railnet.daemon.rail_counters import RailCounters
from railnet.daemon.rail_memory_file import waking
from railnet.daemon.resync.lost_rails_watch import LostRailsWatch
from railnet.daemon.resync.periodic_resync import releasing_ipam, resyncing
from railnet.daemon.resync.port_watch import watching_ports
from railnet.daemon.resync.resync_requests import ResyncRequests
from railnet.daemon.roce_facts_for_status import RoceStatus
from railnet.daemon.unsent_network_status import send_again
from railnet.errors import Misconfigured, NoAddress
from railnet.health_server import Health, Pages
from railnet.kernel.inventory import inventory
from railnet.kernel.netlink import rdma_netns_mode
from railnet.kernel.sysfs.functions import Sysfs
from railnet.kernel.threads.file_reads import read_in_time
from railnet.kubelet.checkpoint_file import CheckpointReads
from railnet.status.daemon_answer import encode, report, with_functions, with_lost, with_roce, with_topology
from railnet.vf.inventory import Inventory
from railnet.vf.record import Record
from railnet.vf.vf_table import VfTable

_log = logging.getLogger(__name__)
_ENDING = (signal.SIGTERM, signal.SIGINT)
# Executables wait a second for HELLO, while hundreds that start at the same moment use the processors, too. In a container the
# kernel refuses this, and the share of its control group has the same effect.
_NICE = -10


class Presence(Protocol):
    """Railnet in the runtime's configuration: kept or taken out while the daemon serves; and why it is not as it should be.

    `leaves` says which.
    """

    leaves: bool
    why_inactive: str | None
    trouble: str | None
    rewrites: str | None

    async def serve(self, changed: Callable[[], None]) -> None:
        """Keep it or take it out; the daemon ends when this returns. `changed` is called after a change of `why_inactive`."""


async def run(configuration: Configuration, health_port: int, restarts: int) -> None:
    """Serve until SIGTERM or SIGINT. These leave the runtime's configuration as it is: an upgrade and a removal send the same.

    A refusal of the node's files or kernel ends nothing: the daemon tries again, and readiness says why. `restarts` is how often the
    supervisor has started the daemon again, for the metrics.

    Raises:
        Misconfigured: the configuration does not fit the node. PermissionError: the process lacks a privilege.
    """
    health = Health()
    async with health.serving(health_port), alone(health):
        kubelet = KubeletSearch(configuration.host)
        keeper = ConflistKeeper(configuration, kubelet.known)
        await _own(configuration, keeper, kubelet, health, restarts)


async def uninstall(configuration: Configuration, health_port: int, restarts: int, *, stay: bool) -> bool:
    """Remove Railnet from this node; return whether all of it is removed.

    The runtime uses the primary at once. The rest is removed when the last sandbox that was made through Railnet has ended.
    Until then this serves their DELs, and the executable stays; SIGTERM ends it earlier. With `stay` it goes on answering
    health requests when all is done, as a container of a DaemonSet must.

    Raises:
        OSError: the runtime's configuration cannot be removed.
        Misconfigured, PermissionError: as `run`; the runtime uses the primary already.
    """
    from railnet.install.uninstaller import Leaving  # noqa: PLC0415 - what copies a Python is not for a daemon that serves

    health, kubelet = Health(), KubeletSearch(configuration.host)
    leaving = Leaving(configuration.host, partial(allocated_vfs.claims, kubelet, lambda: False))
    async with health.serving(health_port):
        async with alone(health):
            leaving.deactivate()
            await _own(replace(configuration, provision=()), leaving, kubelet, health, restarts)
            if leaving.done:
                leaving.forget()
        if leaving.done and stay:
            health.show(Pages(list))
            with _ended_by_signals(), suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
    return leaving.done


async def _own(
    configuration: Configuration, presence: Presence, kubelet: KubeletSearch, health: Health, restarts: int
) -> None:
    """Be the daemon that owns this node's VFs, from the journal to the last request."""
    with suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, _NICE)
    with suppress(OSError):  # the registration looks again
        await kubelet.look()
    tasks = BackgroundTasks()
    asyncio.get_running_loop().set_default_executor(await tasks.start("the first thread", _threads))
    health.show(Pages(lambda: ["recovering state and provisioning VFs", *tasks.reasons()]))
    node, metrics = await tasks.start("the start", partial(_start, configuration, kubelet, restarts))
    async with AsyncExitStack() as stack:
        publisher = partial(_entered, stack, configuration, node)
        observe = await tasks.start("the messages to the API server", publisher)
        await send_again(configuration.host.root, node.journal.records(), observe)
        await _serve(configuration, node, metrics, observe, kubelet, presence=presence, health=health, tasks=tasks)


async def _threads() -> Threads:
    return Threads()


async def _entered(stack: AsyncExitStack, configuration: Configuration, node: NodeParts) -> Observer:
    return await stack.enter_async_context(publishing(configuration, node.claims.with_any))


async def _start(configuration: Configuration, kubelet: KubeletSearch, restarts: int) -> tuple[NodeParts, Metrics]:
    """Bring the node's VFs and records in order; after a failure all of it is done again, as by a new daemon.

    Raises:
        Misconfigured, NotReady, OSError: as `run`.
    """
    _check_rdma_netns_mode()
    sysfs = Sysfs(configuration.host.sysfs, configuration.rails, configuration.link_layers, configuration.rail_select)
    table = VfTable(await inventory(sysfs, Inventory()))
    metrics = Metrics(restarts)
    node = attachment_composition.compose(configuration, sysfs, table, metrics.took_back, kubelet)
    await node.rails.look()
    await _recover(node)
    await provisioning.make_vfs(configuration, table, sysfs, node.allocated.vfs)
    _check_addresses(configuration, table)
    return node, metrics


def _check_rdma_netns_mode() -> None:
    if rdma_netns_mode.netns_mode() == "exclusive":
        raise Misconfigured(
            "the kernel's RDMA netns mode is exclusive, and this version serves shared only: "
            "`rdma system set netns shared`, or the option netns_mode=1 of module ib_core"
        )


async def _recover(node: NodeParts) -> None:
    """Claim the VFs of the journal's records and take back what was left; no request is served before."""
    await node.contested.settle()
    node.repair.own_recorded()
    await node.recovery.sweep()
    await node.recovery.find_orphans()


def _check_addresses(configuration: Configuration, table: VfTable) -> None:
    offered = {vf.address for vfs in assign(configuration.pools, table.inventory).values() for vf in vfs}
    try:
        LocalIpam(configuration.host.flannel, configuration.host.root).check(
            configuration.networks, table.inventory, offered
        )
    except NoAddress as error:
        _log.warning("pods with a rail must wait: %s", error)


async def _serve(  # noqa: PLR0913 - composed once
    configuration: Configuration,
    node: NodeParts,
    metrics: Metrics,
    observe: Observer,
    kubelet: KubeletSearch,
    *,
    presence: Presence,
    health: Health,
    tasks: BackgroundTasks,
) -> None:
    root = configuration.host.root
    services = [_service(pool, configuration, node, presence) for pool in configuration.pools]
    devices = PodDevices(
        configuration.host.device_plugins,
        kubelet.pod_resources,
        configuration.resources,
        configuration.timeouts.kubelet,
        lambda: all(service.streams for service in services),
        dra_composition.pod_claims(configuration, node, kubelet),
    )
    limits, slots, folders = _limits(configuration), DelegateSlots(), CniFoldersInUse(configuration.host)
    parts = Parts(devices, node.attachments, node.sandboxes, node.recovery, node.primary_gc, root, limits)
    node_object = NodeObject(configuration, node.table, node.sysfs, observe, node.journal.records)
    slices = NodeSlices(configuration, node.table, node.sysfs, partial(_offered, services), lambda: node_object.places)
    changed, changed_at_once = (
        partial(_stream_again, (*services, slices), at_once=at_once) for at_once in (False, True)
    )
    registrations = [Registration(service, kubelet.look, root) for service in services]
    drivers = [
        Registration(driver, kubelet.look, root, registered=slices.publisher.registered)
        for driver in await dra_composition.drivers(configuration, node, kubelet, services, slices, changed)
    ]
    counters, pf_ports = (
        RailCounters(node.table, node.sysfs, node.journal.records),
        PfPortReads(node.table, node.sysfs),
    )
    losses, memlock = (
        LostRailsWatch(node.table, partial(_aged_records, node), observe),
        MemlockLimits(configuration, node.table, node.journal.records, node.allocated.pods),
    )
    gauges = Gauges(
        vfs=partial(_vfs, node.table, services),
        registrations=lambda: {plugin.resource: plugin.registrations for plugin in (*registrations, *drivers)},
        queue=lambda: slots.waiting,
        hung_reads=lambda: node.sysfs.reads.hung + node_object.hung + counters.hung + pf_ports.hung,
        hung_writes=lambda: node.sysfs.writes.hung,
        rails=partial(_active_rails, configuration, node.table),
        lost=losses.by_rail,
        counters=lambda: counters.text + node_object.errors.text(),
    )
    health.show(
        Pages(
            partial(_reasons, services, registrations, drivers, presence, node=node, tasks=tasks),
            partial(metrics.text, gauges),
            counters.fresh,
        )
    )
    answer = partial(
        _answer_to_query,
        node,
        gauges,
        _ReportParts(
            slots,
            health,
            node_object,
            RoceStatus(node.table, node.sysfs),
            pf_ports,
            presence,
            losses,
            slices,
            memlock,
        ),
    )
    server = Server(
        RequestHandler(parts, DeviceMetadata(root, node.claims, slices.devices).before(observe), metrics, folders.note),
        limits,
        slots,
        FlannelDelegates(root),
        answer,
    )
    listening = asyncio.Event()

    async def ready() -> None:
        _log.info("serving on %s", SOCKET)
        listening.set()

    with suppress(asyncio.CancelledError), _ended_by_signals() as end, _first_failure():

        async def present() -> None:
            await listening.wait()
            await presence.serve(changed_at_once)  # readiness has it at once, too, and pods may come then
            await asyncio.gather(node_object.removed(), slices.removed())
            end()

        # Each goes on until the end: only the configuration ends the daemon (`BackgroundTasks`).
        work: dict[str, Callable[[], Awaitable[None]]] = {
            **{f"the registration of {plugin.resource}": plugin.serve for plugin in (*registrations, *drivers)},
            **_work(configuration, node, changed, changed_at_once),
            **node_object.work(leaving=presence.leaves),
            **slices.work(leaving=presence.leaves),
            **memlock.work(),
            "the counters of new pods": counters.serve,
            "the watch of pods' rails": losses.serve,
            f"the socket {SOCKET}": partial(server.serve, Path(SOCKET), ready),
            "the container runtime's configuration": present,
            **(
                {}
                if presence.leaves
                else {"the former CNI folders": partial(folders.leave_former, partial(_is_active, presence))}
            ),
        }
        async with asyncio.TaskGroup() as group:
            for title, task in work.items():
                group.create_task(tasks.keep(title, task))
    _log.info("stopped; running pods keep their rails")


def _work(
    configuration: Configuration, node: NodeParts, changed: Callable[[], None], port_changed: Callable[[], None]
) -> dict[str, Callable[[], Awaitable[None]]]:
    """Return what watches the node and brings it in order, by title; the callables have kubelet told."""
    requests, looked, look_at_rails = ResyncRequests(), asyncio.Event(), asyncio.Event()
    read_again = waking(look_at_rails, changed)
    return {
        "the look at the node's VFs": partial(
            resyncing, node.table, node.recovery, node.sysfs, read_again, requests, looked
        ),
        "the memory of rails": partial(node.rails.serve, look_at_rails),
        "the watch of the ports": partial(watching_ports, node.table, node.sysfs, port_changed, requests),
        "the provision of VFs": partial(
            provisioning.retrying, configuration, node.table, node.sysfs, node.allocated.vfs, requests.everything
        ),
        "the release of addresses": partial(releasing_ipam, node.recovery, looked),
        "the search for leftovers of the primary network": partial(sweeping, configuration, node.primary_gc),
    }


def _limits(configuration: Configuration) -> TimeLimits:
    return TimeLimits(configuration.timeouts.delegate, configuration.timeouts.add)


def _is_active(presence: Presence) -> bool:
    return presence.why_inactive is None and presence.trouble is None


def _active_rails(configuration: Configuration, table: VfTable) -> dict[int, bool]:
    troubles = rails_condition.reasons(configuration, table.inventory) or {}
    return {rail: trouble is None for rail, trouble in troubles.items()}


def _vfs(table: VfTable, services: list[PoolService]) -> dict[str, list[tuple[OfferedVf, bool]]]:
    return {
        service.pool.resource: [(offer, table.owner(offer.vf.address) is not None) for offer in service.offers()]
        for service in services
    }


def _service(pool: Pool, configuration: Configuration, node: NodeParts, presence: Presence) -> PoolService:
    def node_reason() -> str | None:
        return presence.why_inactive or node.rails.why_no_vf()

    checkpoint = CheckpointReads(configuration.host.device_plugins, read_in_time)
    return PoolService(
        pool,
        configuration.pools,
        node.table,
        node.attachments.attached,
        checkpoint,
        node_reason,
        on_host_network=partial(pods_on_host_network, configuration.host),
        claimed=lambda: node.claims.users,
        lists=configuration.offer == "device-plugin",
    )


def _offered(services: list[PoolService]) -> dict[str, tuple[OfferedVf, ...]]:
    return {service.pool.resource: service.offers() for service in services}


def _stream_again(offering: Iterable[PoolService | NodeSlices], *, at_once: bool = False) -> None:
    for each in offering:
        each.changed(at_once=at_once)


class _ReportParts(NamedTuple):
    """The parts that `railnet status` tells of, beside the table, the pools and the journal."""

    slots: DelegateSlots
    health: Health
    node_object: NodeObject
    roce: RoceStatus
    pf_ports: PfPortReads
    presence: Presence
    losses: LostRailsWatch
    slices: NodeSlices
    memlock: MemlockLimits


def _aged_records(node: NodeParts) -> list[tuple[Record, float]]:
    return [(record, node.journal.age(record)) for record in node.journal.records()]


async def _answer_to_query(node: NodeParts, gauges: Gauges, parts: _ReportParts) -> bytes:
    records = _aged_records(node)
    quarantined = map(str, node.journal.quarantined())
    reasons = parts.health.reasons()
    told = report(node.table.inventory, gauges.vfs(), records, parts.slots.waiting, reasons, quarantined)
    told = with_lost(told, parts.losses.lost)
    told = with_topology(told, parts.node_object.places, parts.node_object.trouble_of_labels)
    told |= {
        "condition": parts.node_object.trouble_of_condition,
        "errors": list(rail_errors.lines(parts.node_object.errors.errors())),
        "kernelLog": parts.node_object.errors.trouble,
        "rewrites": parts.presence.rewrites,
        "slices": parts.slices.trouble,
        "memlock": parts.memlock.trouble,
    }
    roce, ports = await asyncio.gather(parts.roce.facts(), parts.pf_ports.ports())
    inventory_now = node.table.inventory
    return encode(with_functions(with_roce(told, inventory_now, roce), inventory_now, ports))


def _reasons(
    services: list[PoolService],
    registrations: list[Registration],
    drivers: list[Registration],
    presence: Presence,
    *,
    node: NodeParts,
    tasks: BackgroundTasks,
) -> list[str]:
    """Return the reasons why this node is not ready, for /readyz."""
    unknown = [
        f"kubelet does not watch {registration.resource}: {registration.trouble}"
        for service, registration in zip(services, registrations, strict=True)
        if not registration.registered or not service.streams
    ]
    unregistered = [
        f"kubelet has not registered {driver.resource}: {driver.trouble}" for driver in drivers if not driver.registered
    ]
    return [
        *unknown,
        *unregistered,
        *node.table.unprovisioned.values(),
        *filter(None, (presence.trouble, presence.why_inactive)),
        *node.rails.reasons(),
        *tasks.reasons(),
    ]


@contextmanager
def _ended_by_signals() -> Iterator[Callable[[], object]]:
    """Have SIGTERM and SIGINT cancel the current task; yield the function that they call."""
    loop, this = asyncio.get_running_loop(), asyncio.current_task()
    if this is None:
        raise RuntimeError("only a task can be ended")
    for number in _ENDING:
        loop.add_signal_handler(number, this.cancel)
    try:
        yield this.cancel
    finally:
        for number in _ENDING:
            loop.remove_signal_handler(number)


@contextmanager
def _first_failure() -> Iterator[None]:
    """Raise the first error of a group of tasks instead of the group."""
    try:
        yield
    except ExceptionGroup as group:
        for error in group.exceptions:
            _log.error("ended by %r", error)
        raise group.exceptions[0] from group
