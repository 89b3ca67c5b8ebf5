"""The node daemon, composed: journal → inventory → recover → provision → serve."""

import asyncio
import fcntl
import logging
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from cni.addresses import Addresses
from cni.assignment import Assignment
from cni.gc import Collectors
from cni.host import lock
from cni.host.daemon import SOCKET
from cni.host_view import Host
from cni.journal import Journal
from cni.leftovers import collector
from cni.leftovers.collector import Leftovers
from cni.locks import remove_unheld
from cni.outcome import Observer
from cni.places import Places
from cni.rails import Rails
from cni.recovery import Recovery
from cni.server import Limits, Server
from deviceplugin.pools import Pool
from deviceplugin.registration import Registration
from deviceplugin.service import PoolService
from kernel import perform, rdma, uevents, vf_netlink
from kernel.boot import boot_id
from kernel.sysfs import Sysfs
from kubelet.checkpoint_file import CheckpointFile
from railnet.activation import Activation
from railnet.configuration import Configuration
from railnet.health import Health
from railnet.install import EXECUTABLE
from railnet.leftovers import sweeping
from railnet.metrics import Metrics
from railnet.publish import publishing
from railnet.uninstall import Leaving
from vf import provision
from vf.address import PciAddress
from vf.errors import Misconfigured, NoAddress, NotReady
from vf.table import VfTable

_log = logging.getLogger(__name__)
_RUN = Path(lock.RUN)
# PCI and net changes come as uevents, a port's state comes as none: sysfs is read again every so often.
_RESYNC_SECONDS = 10.0
_QUIET_SECONDS = 0.5  # uevents come in swarms
_SETTLE_SECONDS = 5.0
_LOOK_SECONDS = 0.05
_SAY_AGAIN_SECONDS = 5.0
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
    async with health.serving(health_port), _alone(health):
        await _own(configuration, Activation(configuration), health)


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
        async with _alone(health):
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
    sysfs = Sysfs(configuration.host.sysfs, configuration.rails)
    table = VfTable(sysfs.inventory())
    journal = Journal(_RUN / "journal", _RUN / "quarantine")
    timeouts = configuration.timeouts
    host = Host(configuration.host.root, configuration.host.flannel, timeouts.daemon, timeouts.delegate, boot=boot_id())
    rails = Rails(table, journal, sysfs, configuration.networks, host)
    metrics = Metrics()
    recovery = Recovery(rails, lambda: _pods(configuration), took_back=metrics.took_back)
    leftovers = Leftovers(_leftovers_host(configuration), rails.records, metrics.took_back)
    await _recover(rails, recovery)
    await _provision(configuration, table, sysfs)
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
    rails: Rails
    recovery: Recovery
    leftovers: Leftovers
    sysfs: Sysfs
    observe: Observer
    metrics: Metrics


def _make_folders() -> None:
    for folder in (_RUN, Path(lock.FOLDER)):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)


def _check_rdma_netns_mode() -> None:
    if rdma.netns_mode() == "exclusive":
        raise Misconfigured(
            "the kernel's RDMA netns mode is exclusive, and this version serves shared only: "
            "`rdma system set netns shared`, or the option netns_mode=1 of module ib_core"
        )


@asynccontextmanager
async def _alone(health: Health) -> AsyncIterator[None]:
    """Be the one owner of this node's VFs, as soon as the one before has ended.

    The lock is in the host's /run/railnet, so it counts for every container and for none. To wait for it, rather than to
    end, saves the pause that kubelet would make before another start.
    """
    health.reasons = lambda: ["another railnet daemon owns this node's VFs; this one waits for its end"]
    fd = await _lock(_RUN / "daemon.lock")
    try:
        yield
    finally:
        os.close(fd)


async def _lock(path: Path) -> int:
    """Lock a file; the caller owns the descriptor."""
    said_at = -_SAY_AGAIN_SECONDS
    while (fd := _try_lock(path)) is None:
        if time.monotonic() - said_at >= _SAY_AGAIN_SECONDS:
            _log.warning("another railnet daemon owns this node's VFs: waiting for its end")
            said_at = time.monotonic()
        await asyncio.sleep(_LOOK_SECONDS)
    return fd


def _try_lock(path: Path) -> int | None:
    """Lock a file, made if it is absent; None if another holds it, or its last holder has deleted it meanwhile."""
    _make_folders()
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    with suppress(BlockingIOError, FileNotFoundError):
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(fd), path.stat()):
            return fd
    os.close(fd)
    return None


async def _recover(rails: Rails, recovery: Recovery) -> None:
    """Own what the journal says and take back what was left; nobody is served before."""
    rails.restore()
    await recovery.sweep()
    await recovery.look()


async def _provision(configuration: Configuration, table: VfTable, sysfs: Sysfs) -> None:
    if _is_for_other_nodes(configuration, table):
        _log.info("provision: this node has no InfiniBand card, so there is nothing to make")
        return
    vfs = [(pf, vf) for pf in table.inventory.pfs for vf in pf.vfs]
    # A VF with a driver whose netdev is elsewhere is in some pod, whoever put it there.
    in_use = {vf.address for pf, vf in vfs if table.owner(vf.address) or (vf.driver and pf.netdev and not vf.netdev)}
    in_use |= _allocated(configuration)
    create = provision.create(configuration.provision, table.inventory, in_use)
    for step in create:
        _log.info("PF %s: making %d VFs", step.pf, step.count)
    await asyncio.to_thread(perform.provision, create, sysfs)
    table.refresh(sysfs.inventory())
    pfs = [pf for entry in configuration.provision if (pf := table.inventory.pf(entry.pf)) is not None]
    macs = await asyncio.to_thread(vf_netlink.macs, pfs)
    bind = provision.name_and_bind(configuration.provision, table.inventory, macs)
    await asyncio.to_thread(perform.provision, bind, sysfs)
    await _settle(configuration, table, sysfs)


def _is_for_other_nodes(configuration: Configuration, table: VfTable) -> bool:
    """Tell whether `provision` names only PFs of other nodes: one configuration may serve those without a card, too."""
    pfs = table.inventory.pfs
    named = {entry.pf for entry in configuration.provision}
    return not any(pf.address in named or pf.link_layer == "InfiniBand" for pf in pfs)


async def _settle(configuration: Configuration, table: VfTable, sysfs: Sysfs) -> None:
    """Wait a little until the VFs that were bound have their netdevs and RDMA devices; kubelet then sees them healthy."""
    give_up = asyncio.get_running_loop().time() + _SETTLE_SECONDS
    wanted = {entry.pf for entry in configuration.provision}
    while True:
        table.refresh(await asyncio.to_thread(sysfs.inventory))
        vfs = [(pf, vf) for pf in table.inventory.pfs for vf in pf.vfs if pf.address in wanted]
        free = [(pf, vf) for pf, vf in vfs if table.owner(vf.address) is None]
        # A plain Ethernet card has no RDMA device, and then neither have its VFs.
        late = [str(vf.address) for pf, vf in free if vf.netdev is None or (vf.rdma is None and pf.rdma is not None)]
        if not late:
            return
        if asyncio.get_running_loop().time() > give_up:
            _log.warning("no netdev or RDMA device yet: %s", ", ".join(late))
            return
        await asyncio.sleep(_LOOK_SECONDS)


def _allocated(configuration: Configuration) -> set[PciAddress]:
    """Give what kubelet has allocated of our resources.

    Raises:
        NotReady: kubelet's checkpoint is there and cannot be understood; then nobody knows what is in use.
    """
    try:
        return set(_holders(configuration))
    except ValueError as error:
        raise NotReady(f"no VF is provisioned before it is known what is in use: {error}") from None


def _pods(configuration: Configuration) -> dict[PciAddress, str] | None:
    """Give the UIDs of the pods that kubelet gave VFs to; None where its checkpoint cannot be understood."""
    try:
        return _holders(configuration)
    except (OSError, ValueError) as error:
        _log.warning("who has which VF is not known: %s", error)
        return None


def _holders(configuration: Configuration) -> dict[PciAddress, str]:
    try:
        entries = CheckpointFile(configuration.host.kubelet).read()
    except NotReady:
        return {}  # kubelet has not started yet, so nothing runs
    held = [(uid, ids) for uid, pod in entries.items() for name, ids in pod.items() if name in configuration.resources]
    return {PciAddress.parse(id_): uid for uid, ids in held for id_ in ids}


def _check_addresses(configuration: Configuration, table: VfTable) -> None:
    try:
        Addresses(configuration.host.flannel).check(configuration.networks, table.inventory)
    except NoAddress as error:
        _log.warning("pods with a rail must wait: %s", error)


async def _serve(configuration: Configuration, node: _Node, presence: Presence, health: Health) -> None:
    kubelet, root = configuration.host.kubelet, configuration.host.root
    services = [_service(pool, configuration, node, presence) for pool in configuration.pools]
    assignment = Assignment(
        kubelet,
        configuration.resources,
        configuration.timeouts.kubelet,
        lambda: all(service.streams for service in services),
    )
    limits = Limits(configuration.timeouts.delegate, configuration.timeouts.add)
    places = Places()
    collectors = Collectors(node.recovery, node.leftovers)
    server = Server(assignment, node.rails, collectors, root, limits, node.observe, places=places, meter=node.metrics)
    registrations = [Registration(service, kubelet) for service in services]
    health.reasons = lambda: _reasons(services, registrations, presence)
    node.metrics.ask(node.table, services, registrations, places)
    health.metrics = node.metrics.text
    with suppress(asyncio.CancelledError), _ended_by_signals() as end, _first_failure():
        async with asyncio.TaskGroup() as group:

            async def ready() -> None:
                _log.info("serving on %s", SOCKET)
                group.create_task(_be_present(presence, services, end))

            for registration in registrations:
                group.create_task(registration.serve())
            swept = asyncio.Event()
            group.create_task(_resync(node.table, node.recovery, node.sysfs, services, swept))
            group.create_task(_give_back(node.recovery, swept))
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


async def _be_present(presence: Presence, services: list[PoolService], end: Callable[[], object]) -> None:
    def changed() -> None:
        for service in services:
            service.changed()

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


async def _resync(
    table: VfTable, recovery: Recovery, sysfs: Sysfs, services: list[PoolService], swept: asyncio.Event
) -> None:
    with uevents.changes() as changed:
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(changed.wait(), _RESYNC_SECONDS)
                await asyncio.sleep(_QUIET_SECONDS)
            changed.clear()
            try:
                await _look_again(table, sysfs)
                await recovery.sweep()
                await recovery.look()
                await asyncio.to_thread(remove_unheld, Path(lock.FOLDER))
            except (OSError, ValueError, Misconfigured) as error:
                _log.error("resync: %s", error)
            swept.set()
            for service in services:
                service.changed()


async def _give_back(recovery: Recovery, swept: asyncio.Event) -> None:
    """Tell IPAM plugins at the start and after each sweep, in a task of its own: they may hang."""
    while True:
        await recovery.give_back()
        await swept.wait()
        swept.clear()


async def _look_again(table: VfTable, sysfs: Sysfs) -> None:
    generation = table.generation
    table.refresh(await asyncio.to_thread(sysfs.inventory), generation)
