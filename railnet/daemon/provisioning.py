"""Make the VFs that the configuration asks for: at the daemon's start, and again for a PF that could not be served or came back.

`railnet.vf.provision` decides which changes that takes. A refusal of one PF costs that PF alone: its VFs are unhealthy with the
reason, /readyz has the reason, and the other PFs are served.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Container, Iterable, Iterator, Sequence
from functools import partial
from itertools import count

from railnet.backoff import Backoff
from railnet.configuration import Configuration
from railnet.errors import Misconfigured, NotReady, RailnetError
from railnet.kernel import vf_provisioning
from railnet.kernel.inventory import inventory
from railnet.kernel.netlink import pf_link_query
from railnet.kernel.sysfs.functions import Sysfs
from railnet.kernel.threads.bounded_reads import DoesNotAnswer
from railnet.kernel.threads.bounded_threads import BoundedThreads
from railnet.kernel.waiting import until_awaited
from railnet.vf import provision
from railnet.vf.guid import Guid
from railnet.vf.inventory import PhysicalFunction
from railnet.vf.mac import Mac
from railnet.vf.pci_address import PciAddress
from railnet.vf.provision import Provision
from railnet.vf.steps import CreateVfs, ProvisionStep
from railnet.vf.vf_table import VfTable

_log = logging.getLogger(__name__)
_SETTLE_SECONDS = 5.0
_LOOK_SECONDS = 0.05
_BACKOFF = Backoff(first_seconds=1.0, longest_seconds=10.0)
_BINDS = 2  # a driver that is refused once may have lacked memory for a moment
_WRITE_SECONDS = 60.0  # mlx5 takes some seconds for a hundred VFs
# The other PFs' pods wait for a start. A PF that takes longer gets its VFs while the daemon serves.
_START_SECONDS = 20.0
_links = BoundedThreads(1)

Allocated = Callable[[], Awaitable[set[PciAddress]]]
"""Returns the VFs that kubelet has allocated to pods. Raises NotReady, OSError: they are not known."""


async def make_vfs(
    configuration: Configuration, table: VfTable, sysfs: Sysfs, allocated: Allocated, *, serving: bool = False
) -> None:
    """Make the VFs that are missing, set their GUIDs, bind their drivers, and refresh the VF table.

    The table has the reason why a PF could not be served (`VfTable.unprovisioned`). While the daemon is `serving`, VFs are made only on a
    PF that has none: kubelet may give the others to a pod at any moment.

    Raises:
        OSError: the root is not a sysfs.
    """
    wanted, twice = provision.selected(configuration.provision, table.inventory)
    troubles = {**twice, **provision.unmatched(configuration.provision, table.inventory)}
    if not troubles and _is_for_other_nodes(wanted, table):
        _log.info("provision: this node has no InfiniBand card, so there is nothing to make")
        return
    await _create(wanted, table, sysfs, allocated, troubles, serving=serving)
    # Recovery or another program may have bound a driver meanwhile: to bind a VF again fails with EBUSY.
    table.refresh(await inventory(sysfs, table.inventory))
    for _ in range(_BINDS):
        refused = await _name_and_bind(wanted, table, sysfs, troubles, serving=serving)
        table.refresh(await inventory(sysfs, table.inventory))
        if not refused:
            break
    _report(table, troubles)
    if not serving:
        await _settle({entry.pf for entry in wanted} - troubles.keys(), table, sysfs)


async def retrying(
    configuration: Configuration,
    table: VfTable,
    sysfs: Sysfs,
    allocated: Allocated,
    read_everything: Callable[[], None],
) -> None:
    """Try again until cancelled: for a PF that could not be served, and for a card that has come back.

    A PF that was refused at the start may have lacked memory for a moment: the first pause is a second at most, and later ones grow to ten.
    `read_everything` is called after each attempt: the next look at the VFs, which has kubelet told of them, must not wait for its
    own time.
    """
    for look in count(1):
        await asyncio.sleep(_BACKOFF.pause(look, random.random()))  # noqa: S311 - no secret
        wanted, _ = provision.selected(configuration.provision, table.inventory)
        if table.unprovisioned or provision.came_back(wanted, table.inventory):
            try:
                await make_vfs(configuration, table, sysfs, allocated, serving=True)
            except (OSError, ValueError, RailnetError) as error:
                _log.error("provision: %s; it is tried again", error)
            read_everything()


async def _create(
    wanted: Iterable[Provision],
    table: VfTable,
    sysfs: Sysfs,
    allocated: Allocated,
    troubles: dict[PciAddress, str],
    *,
    serving: bool,
) -> None:
    needed = list(_creations(wanted, table, (), troubles))
    # kubelet's checkpoint is read only if VFs are to be replaced: a checkpoint that is not understood costs no new VFs.
    replacing = {step.pf for step in needed if step.replaced}
    in_use: set[PciAddress] | None = set()
    if replacing and not serving:
        in_use = await _in_use(allocated, table, replacing, troubles)
    creations = []
    for step in needed:
        if step.replaced and (serving or in_use is None):
            continue
        if step.replaced and any(vf in (in_use or ()) for vf in _vfs_of(table, step.pf)):
            _log.warning(
                "PF %s keeps its %d VFs, because pods use some of them: %d are made when the daemon starts while no pod uses any",
                step.pf,
                step.replaced,
                step.count,
            )
            continue
        _log.info("PF %s: making %d VFs", step.pf, step.count)
        creations.append(_do((step,), step.pf, sysfs, troubles, serving=serving))
    await asyncio.gather(*creations)


def _creations(
    wanted: Iterable[Provision], table: VfTable, in_use: Container[PciAddress], troubles: dict[PciAddress, str]
) -> Iterator[CreateVfs]:
    for entry in wanted:
        pf = table.inventory.pf(entry.pf)
        try:
            if pf is not None and pf.fault is not None:
                raise NotReady(pf.fault)
            yield from provision.create((entry,), table.inventory, in_use)
        except (Misconfigured, NotReady) as error:
            troubles[entry.pf] = str(error)


def _vfs_of(table: VfTable, pf: PciAddress) -> list[PciAddress]:
    physical_function = table.inventory.pf(pf)
    return [] if physical_function is None else [vf.address for vf in physical_function.vfs]


async def _in_use(
    allocated: Allocated, table: VfTable, replacing: Iterable[PciAddress], troubles: dict[PciAddress, str]
) -> set[PciAddress] | None:
    """Return the VFs that pods use; None if that is not known."""
    vfs = [(pf, vf) for pf in table.inventory.pfs for vf in pf.vfs]
    # A VF that has a driver and no netdev on the node is in a pod, whichever program moved it there.
    in_use = {vf.address for pf, vf in vfs if table.owner(vf.address) or (vf.driver and pf.netdev and not vf.netdev)}
    try:
        return in_use | await allocated()
    except (NotReady, OSError) as error:
        troubles.update(dict.fromkeys(replacing, str(error)))
        return None


async def _name_and_bind(
    wanted: Iterable[Provision], table: VfTable, sysfs: Sysfs, troubles: dict[PciAddress, str], *, serving: bool
) -> bool:
    """Set the GUIDs or MACs of VFs without a driver, and bind their drivers; return whether a driver was refused."""
    sound = [entry for entry in wanted if entry.pf not in troubles]
    pfs = [pf for entry in sound if (pf := table.inventory.pf(entry.pf)) is not None]
    macs = await _links.run("links", partial(_macs, pfs, troubles))
    owners: dict[Guid | Mac, PciAddress] = {address: pf for pf, address in macs.items()}
    bindings = []
    for entry in sound:
        try:
            steps = provision.name_and_bind((entry,), table.inventory, macs, owners)
        except Misconfigured as error:
            troubles.setdefault(entry.pf, str(error))
        else:
            bindings.append(_do(steps, entry.pf, sysfs, troubles, serving=serving))
    return any(await asyncio.gather(*bindings))


def _macs(pfs: Sequence[PhysicalFunction], troubles: dict[PciAddress, str]) -> dict[PciAddress, Mac]:
    """Read the PFs' MACs. A PF with a link that the kernel refuses costs no other PF."""
    try:
        return pf_link_query.macs(pfs)
    except (OSError, ValueError) as error:
        if len(pfs) == 1:
            troubles[pfs[0].address] = f"the MAC of PF {pfs[0].address} is not known: {error}; look in dmesg"
            return {}
        return {address: mac for pf in pfs for address, mac in _macs((pf,), troubles).items()}


async def _do(
    steps: Sequence[ProvisionStep], pf: PciAddress, sysfs: Sysfs, troubles: dict[PciAddress, str], *, serving: bool
) -> bool:
    seconds = _WRITE_SECONDS if serving else _START_SECONDS
    try:
        refused = await sysfs.writes.write(pf, seconds, partial(vf_provisioning.provision, steps, sysfs))
    except DoesNotAnswer as error:
        troubles[pf] = f"PF {pf} does not get its VFs: {error.strerror}. It is tried again"
        return False
    except (OSError, NotReady) as error:
        troubles[pf] = f"PF {pf} does not get its VFs: {error}; look in dmesg. It is tried again"
        return False
    for vf, why in (refused or {}).items():  # the VF has no driver, which its health says
        _log.error("VF %s: its driver was not bound: %s; look in dmesg", vf, why)
    return bool(refused)


def _report(table: VfTable, troubles: dict[PciAddress, str]) -> None:
    for pf, trouble in troubles.items():
        if table.unprovisioned.get(pf) != trouble:
            _log.error("provision: %s", trouble)
    for pf in table.unprovisioned.keys() - troubles.keys():
        _log.info("provision: PF %s has its VFs now", pf)
    table.report_unprovisioned(troubles)


def _is_for_other_nodes(wanted: Iterable[Provision], table: VfTable) -> bool:
    """Return whether `provision` names only PFs of other nodes: nodes without a card may have the same configuration."""
    pfs = table.inventory.pfs
    named = {entry.pf for entry in wanted}
    return not any(pf.address in named or pf.link_layer == "InfiniBand" for pf in pfs)


async def _settle(wanted: Container[PciAddress], table: VfTable, sysfs: Sysfs) -> None:
    """Wait a little until the bound VFs have their netdevs and RDMA devices, so that kubelet sees them healthy.

    A withheld VF is not waited for: recovery has already looked for its netdev in every namespace. Neither is a VF with a fault.
    """
    late: list[str] = []

    async def all_have_settled() -> bool:
        table.refresh(await inventory(sysfs, table.inventory))
        vfs = [(pf, vf) for pf in table.inventory.pfs for vf in pf.vfs if pf.address in wanted and not pf.fault]
        free = [(pf, vf) for pf, vf in vfs if not (vf.fault or table.owner(vf.address) or table.withheld(vf.address))]
        # A plain Ethernet card has no RDMA device, and its VFs have none.
        late[:] = [str(vf.address) for pf, vf in free if vf.netdev is None or (vf.rdma is None and pf.rdma is not None)]
        return not late

    if not await until_awaited(all_have_settled, _SETTLE_SECONDS, _LOOK_SECONDS):
        _log.warning("no netdev or RDMA device yet: %s", ", ".join(late))
