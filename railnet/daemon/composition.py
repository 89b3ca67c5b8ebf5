"""The node daemon, composed: journal → inventory → recover → provision → serve."""

import asyncio
import logging
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from cni.attachment.attachments import Attachments
from cni.attachment.journal import Journal
from cni.attachment.local_ipam import LocalIpam
from cni.delegate_slots import DelegateSlots
from cni.events import Observer
from cni.host import lock
from cni.host.daemon import SOCKET
from cni.host_paths import HostPaths
from cni.pod_devices import PodDevices
from cni.primary_gc import collector
from cni.primary_gc.collector import PrimaryGc
from cni.recovery.sweep import Recovery
from cni.server import Limits, Server
from cni.verbs.gc import Collectors
from deviceplugin.pools import Pool, assign
from deviceplugin.registration import Registration
from deviceplugin.service import PoolService
from kernel.boot import boot_id
from kernel.inventory import inventory
from kernel.netlink import rdma
from kernel.sysfs import Sysfs
from kubelet.checkpoint_file import CheckpointFile
from railnet.configuration import Configuration
from railnet.daemon import provisioning, vf_holders
from railnet.daemon.conflist_keeper import ConflistKeeper
from railnet.daemon.metrics import Metrics
from railnet.daemon.periodic import giving_back, resyncing
from railnet.daemon.port_watch import watching_ports
from railnet.daemon.primary_gc_schedule import sweeping
from railnet.daemon.publish import publishing
from railnet.daemon.single_instance import alone
from railnet.health import Health
from railnet.install.installer import EXECUTABLE
from railnet.install.uninstaller import Leaving
from railnet.status.report import encode, report
from vf.errors import Misconfigured, NoAddress
from vf.table import VfTable

_log = logging.getLogger(__name__)
_RUN = Path(lock.RUN)
_ENDING = (signal.SIGTERM, signal.SIGINT)
# Executables wait a second for HELLO, and hundreds that start at the same moment want the processors, too. In a container the
# share of its control group does the same, and the kernel refuses this.
_NICE = -10


class Presence(Protocol):
    """Railnet in the runtime's configuration: what is done about it while the daemon serves, and what is wrong with it."""

    why_inactive: str | None
    trouble: str | None

    async def serve(self, changed: Callable[[], None]) -> None:
        """Do it; the daemon ends when this returns. `changed` is called when `why_inactive` has."""


async def run(configuration: Configuration, health_port: int) -> None:
    """Serve until SIGTERM or SIGINT, which change nothing for the runtime: they look alike for upgrade and removal.

    Raises:
        Misconfigured: the configuration does not fit the node. NotReady: VFs do not appear.
        OSError: the node's files or kernel refuse.
    """
    health = Health()
    async with health.serving(health_port), alone(health):
        await _own(configuration, ConflistKeeper(configuration), health)


async def uninstall(configuration: Configuration, health_port: int, *, stay: bool) -> bool:
    """Take Railnet away from this node; gives whether nothing is left.

    The runtime uses the primary at once. The rest goes when the last sandbox that was made through Railnet has ended;
    until then this serves their DELs, or SIGTERM ends it, and the executable stays. With `stay` it goes on answering
    for its health when all is done, as a container of a DaemonSet must.

    Raises:
        Misconfigured, NotReady, OSError: as `run`; the runtime uses the primary already.
    """
    health, leaving = Health(), Leaving(configuration.host.root)
    async with health.serving(health_port):
        async with alone(health):
            leaving.deactivate()
            await _own(replace(configuration, provision=()), leaving, health)
            if leaving.done:
                leaving.forget()
        if leaving.done and stay:
            health.reasons = list
            with _ended_by_signals(), suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
    return leaving.done


async def _own(configuration: Configuration, presence: Presence, health: Health) -> None:
    """Be the daemon, from the journal to the last request."""
    with suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, _NICE)
    health.reasons = lambda: ["it recovers and provisions"]
    _check_rdma_netns_mode()
    sysfs = Sysfs(configuration.host.sysfs, configuration.rails, configuration.link_layers)
    table = VfTable(inventory(sysfs))
    journal = Journal(_RUN / "journal", _RUN / "quarantine")
    timeouts = configuration.timeouts
    host = HostPaths(
        configuration.host.root, configuration.host.flannel, timeouts.daemon, timeouts.delegate, boot=boot_id()
    )
    rails = Attachments(table, journal, sysfs, configuration.networks, host)
    metrics = Metrics()
    recovery = Recovery(rails, lambda: vf_holders.pods(configuration), took_back=metrics.took_back)
    leftovers = PrimaryGc(_leftovers_host(configuration), rails.records, metrics.took_back)
    await _recover(rails, recovery)
    await provisioning.make_vfs(configuration, table, sysfs)
    _check_addresses(configuration, table)
    async with publishing(configuration) as observe:
        await _serve(configuration, _Node(table, rails, recovery, leftovers, sysfs, observe, metrics), presence, health)


def _leftovers_host(configuration: Configuration) -> collector.Host:
    host, timeouts = configuration.host, configuration.timeouts
    path = str(Path(EXECUTABLE).parent)
    # What is undone at the end of an ADD's time is undone after it, by delegates with a limit of their own.
    return collector.Host(host.root, host.cri, path, timeouts.delegate, timeouts.add + timeouts.delegate)


@dataclass(frozen=True, slots=True)
class _Node:
    """What there is one of on the node, for all who serve it."""

    table: VfTable
    rails: Attachments
    recovery: Recovery
    leftovers: PrimaryGc
    sysfs: Sysfs
    observe: Observer
    metrics: Metrics


def _check_rdma_netns_mode() -> None:
    if rdma.netns_mode() == "exclusive":
        raise Misconfigured(
            "the kernel's RDMA netns mode is exclusive, and this version serves shared only: "
            "`rdma system set netns shared`, or the option netns_mode=1 of module ib_core"
        )


async def _recover(rails: Attachments, recovery: Recovery) -> None:
    """Own what the journal says and take back what was left; nobody is served before."""
    rails.restore()
    await recovery.sweep()
    await recovery.look()


def _check_addresses(configuration: Configuration, table: VfTable) -> None:
    offered = {vf.address for vfs in assign(configuration.pools, table.inventory).values() for vf in vfs}
    try:
        LocalIpam(configuration.host.flannel).check(configuration.networks, table.inventory, offered)
    except NoAddress as error:
        _log.warning("pods with a rail must wait: %s", error)


async def _serve(configuration: Configuration, node: _Node, presence: Presence, health: Health) -> None:
    kubelet, root = configuration.host.kubelet, configuration.host.root
    services = [_service(pool, configuration, node, presence) for pool in configuration.pools]
    assignment = PodDevices(
        kubelet,
        configuration.resources,
        configuration.timeouts.kubelet,
        lambda: all(service.streams for service in services),
    )
    limits = Limits(configuration.timeouts.delegate, configuration.timeouts.add)
    places = DelegateSlots()
    collectors = Collectors(node.recovery, node.leftovers)
    registrations = [Registration(service, kubelet) for service in services]
    health.reasons = lambda: _reasons(services, registrations, presence)
    node.metrics.ask(node.table, services, registrations, places)
    health.metrics = node.metrics.text

    def told() -> bytes:
        records = ((record, node.rails.age(record)) for record in node.rails.records())
        return encode(report(node.table.inventory, node.metrics.vfs(), records, places.waiting, health.reasons()))

    server = Server(
        assignment,
        node.rails,
        collectors,
        root,
        limits,
        node.observe,
        places=places,
        meter=node.metrics,
        report=told,
    )

    def changed() -> None:
        for service in services:
            service.changed()

    def port_changed() -> None:
        for service in services:
            service.changed(at_once=True)

    with suppress(asyncio.CancelledError), _ended_by_signals() as end, _first_failure():
        async with asyncio.TaskGroup() as group:

            async def ready() -> None:
                _log.info("serving on %s", SOCKET)
                group.create_task(_be_present(presence, changed, end))

            for registration in registrations:
                group.create_task(registration.serve())
            look_again, swept = asyncio.Event(), asyncio.Event()
            group.create_task(resyncing(node.table, node.recovery, node.sysfs, changed, look_again, swept))
            group.create_task(watching_ports(node.table, node.sysfs, port_changed, look_again))
            group.create_task(giving_back(node.recovery, swept))
            group.create_task(sweeping(configuration, node.leftovers))
            group.create_task(server.serve(Path(SOCKET), ready))
    _log.info("stopped; running pods keep their rails")


def _service(pool: Pool, configuration: Configuration, node: _Node, presence: Presence) -> PoolService:
    checkpoint = CheckpointFile(configuration.host.kubelet)
    return PoolService(
        pool, configuration.pools, node.table, node.rails.attached, checkpoint, lambda: presence.why_inactive
    )


def _reasons(services: list[PoolService], registrations: list[Registration], presence: Presence) -> list[str]:
    """Say why this node is not served, for /readyz."""
    unknown = [
        f"kubelet does not watch {registration.resource}"
        for service, registration in zip(services, registrations, strict=True)
        if not registration.registered or not service.streams
    ]
    return [*unknown, *filter(None, (presence.trouble, presence.why_inactive))]


async def _be_present(presence: Presence, changed: Callable[[], None], end: Callable[[], object]) -> None:
    await presence.serve(changed)
    end()


@contextmanager
def _ended_by_signals() -> Iterator[Callable[[], object]]:
    """Have SIGTERM and SIGINT cancel the current task; gives what they do."""
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
    """Raise what ended a group of tasks rather than the group."""
    try:
        yield
    except ExceptionGroup as group:
        for error in group.exceptions:
            _log.error("ended by %r", error)
        raise group.exceptions[0] from group
