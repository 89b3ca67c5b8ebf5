"""The node daemon, composed: journal → inventory → recover → provision → serve."""

import asyncio
import fcntl
import logging
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

from cni.addresses import SliceAddresses
from cni.assignment import Assignment
from cni.host import lock
from cni.host.daemon import SOCKET
from cni.journal import Journal
from cni.rails import Host, Network, Rails
from cni.server import Limits, Server
from deviceplugin.registration import Registration
from deviceplugin.service import PoolService
from kernel import perform, rdma, uevents, vf_netlink
from kernel.sysfs import Sysfs
from kubelet.checkpoint_file import CheckpointFile
from railnet import conflist
from railnet.configuration import Configuration
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


async def run(configuration: Configuration) -> None:
    """Serve until SIGTERM or SIGINT.

    Raises:
        Misconfigured: the configuration does not fit the node. NotReady: another daemon runs, or VFs do not appear.
        OSError: the node's files or kernel refuse.
    """
    _make_folders()
    _check_rdma_netns_mode()
    sysfs = Sysfs(configuration.host.sysfs, configuration.rails)
    async with _alone():
        table = VfTable(sysfs.inventory())
        journal = Journal(_RUN / "journal", _RUN / "quarantine")
        addresses = SliceAddresses(configuration.network.range, configuration.host.flannel)
        host = Host(configuration.host.root, configuration.timeouts.daemon)
        rails = Rails(
            table, journal, sysfs, Network(configuration.network.mtu, addresses, configuration.network.wait), host
        )
        await _recover(rails)
        await _provision(configuration, table, sysfs)
        _check_addresses(addresses, table)
        await _serve(configuration, table, rails, sysfs)


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
async def _alone() -> AsyncIterator[None]:
    """Be the one owner of this node's VFs."""
    fd = os.open(_RUN / "daemon.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise NotReady("another railnet daemon owns this node's VFs; end it first") from None
        yield
    finally:
        os.close(fd)


async def _recover(rails: Rails) -> None:
    """Own what the journal says and take back what was left; nobody is served before."""
    rails.restore()
    await rails.sweep(at_start=True)


async def _provision(configuration: Configuration, table: VfTable, sysfs: Sysfs) -> None:
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
    resources = configuration.resources
    try:
        entries = CheckpointFile(configuration.host.kubelet).read()
        ids = {id_ for pod in entries.values() for name, held in pod.items() if name in resources for id_ in held}
        return {PciAddress.parse(id_) for id_ in ids}
    except NotReady:
        return set()  # kubelet has not started yet, so nothing runs
    except ValueError as error:
        raise NotReady(f"no VF is provisioned before it is known what is in use: {error}") from None


def _check_addresses(addresses: SliceAddresses, table: VfTable) -> None:
    try:
        addresses.check(table.inventory)
    except NoAddress as error:
        _log.warning("pods with a rail must wait: %s", error)


async def _serve(configuration: Configuration, table: VfTable, rails: Rails, sysfs: Sysfs) -> None:
    kubelet, root = configuration.host.kubelet, configuration.host.root
    assignment = Assignment(kubelet, configuration.resources, configuration.timeouts.kubelet)
    limits = Limits(configuration.timeouts.delegate, configuration.timeouts.add)
    services = [
        PoolService(
            pool,
            configuration.pools,
            table,
            rails.attached,
            CheckpointFile(kubelet),
            lambda: conflist.why_inactive(root),
        )
        for pool in configuration.pools
    ]
    loop, this = asyncio.get_running_loop(), asyncio.current_task()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, lambda: this.cancel() if this is not None else None)
    with suppress(asyncio.CancelledError), _first_failure():
        async with asyncio.TaskGroup() as group:
            for service in services:
                group.create_task(Registration(service, kubelet).serve())
            group.create_task(_resync(table, rails, sysfs, services))
            group.create_task(Server(assignment, rails, root, limits).serve(Path(SOCKET), _ready))
    _log.info("stopped; running pods keep their rails")


@contextmanager
def _first_failure() -> Iterator[None]:
    """Raise what ended a group of tasks rather than the group."""
    try:
        yield
    except ExceptionGroup as group:
        for error in group.exceptions:
            _log.error("ended by %r", error)
        raise group.exceptions[0] from group


async def _ready() -> None:
    _log.info("serving on %s", SOCKET)


async def _resync(table: VfTable, rails: Rails, sysfs: Sysfs, services: list[PoolService]) -> None:
    with uevents.changes() as changed:
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(changed.wait(), _RESYNC_SECONDS)
                await asyncio.sleep(_QUIET_SECONDS)
            changed.clear()
            try:
                await _look_again(table, sysfs)
                await rails.sweep(at_start=False)
            except (OSError, ValueError, Misconfigured) as error:
                _log.error("resync: %s", error)
            for service in services:
                service.changed()


async def _look_again(table: VfTable, sysfs: Sysfs) -> None:
    generation = table.generation
    inventory = await asyncio.to_thread(sysfs.inventory)
    if table.generation == generation:  # else a request has newer facts about its VFs; the next round comes
        table.refresh(inventory)
