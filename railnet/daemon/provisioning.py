"""Make the VFs that the configuration asks for, at the daemon's start. `vf.provision` decides which changes that takes."""

import asyncio
import logging

from kernel import perform
from kernel.inventory import inventory
from kernel.netlink import pf_link_state
from kernel.sysfs import Sysfs
from kernel.waiting import until_awaited
from railnet.configuration import Configuration
from railnet.daemon import allocated_vfs
from vf import provision
from vf.table import VfTable

_log = logging.getLogger(__name__)
_SETTLE_SECONDS = 5.0
_LOOK_SECONDS = 0.05


async def make_vfs(configuration: Configuration, table: VfTable, sysfs: Sysfs) -> None:
    """Make the VFs that are missing, set their GUIDs, bind their drivers, and refresh the VF table.

    Raises:
        OSError: what the kernel refused. Misconfigured: the configuration does not fit the node. NotReady: VFs do not
            appear, or VFs are to be made and it is not known which VFs are in use.
    """
    if _is_for_other_nodes(configuration, table):
        _log.info("provision: this node has no InfiniBand card, so there is nothing to make")
        return
    # kubelet's checkpoint is read only if VFs are to be made: a checkpoint that is not understood ends no daemon that makes none.
    if provision.create(configuration.provision, table.inventory, ()):
        await _create(configuration, table, sysfs)
    # Recovery or another program may have bound a driver meanwhile: to bind a VF again fails with EBUSY.
    table.refresh(await asyncio.to_thread(inventory, sysfs))
    pfs = [pf for entry in configuration.provision if (pf := table.inventory.pf(entry.pf)) is not None]
    macs = await asyncio.to_thread(pf_link_state.macs, pfs)
    bind = provision.name_and_bind(configuration.provision, table.inventory, macs)
    await asyncio.to_thread(perform.provision, bind, sysfs)
    await _settle(configuration, table, sysfs)


async def _create(configuration: Configuration, table: VfTable, sysfs: Sysfs) -> None:
    vfs = [(pf, vf) for pf in table.inventory.pfs for vf in pf.vfs]
    # A VF that has a driver and no netdev on the node is in a pod, whichever program moved it there.
    in_use = {vf.address for pf, vf in vfs if table.owner(vf.address) or (vf.driver and pf.netdev and not vf.netdev)}
    in_use |= allocated_vfs.allocated(configuration)
    create = provision.create(configuration.provision, table.inventory, in_use)
    for step in create:
        _log.info("PF %s: making %d VFs", step.pf, step.count)
    for step in provision.create(configuration.provision, table.inventory, ()):
        if step not in create:
            _log.warning(
                "PF %s keeps its %d VFs, because pods use some of them: %d are made when the daemon starts while no pod uses any",
                step.pf,
                step.replaced,
                step.count,
            )
    await asyncio.to_thread(perform.provision, create, sysfs)


def _is_for_other_nodes(configuration: Configuration, table: VfTable) -> bool:
    """Return whether `provision` names only PFs of other nodes: nodes without a card may have the same configuration."""
    pfs = table.inventory.pfs
    named = {entry.pf for entry in configuration.provision}
    return not any(pf.address in named or pf.link_layer == "InfiniBand" for pf in pfs)


async def _settle(configuration: Configuration, table: VfTable, sysfs: Sysfs) -> None:
    """Wait a little until the bound VFs have their netdevs and RDMA devices, so that kubelet sees them healthy.

    A withheld VF is not waited for: recovery has already looked for its netdev in every namespace.
    """
    wanted = {entry.pf for entry in configuration.provision}
    late: list[str] = []

    async def all_have_settled() -> bool:
        table.refresh(await asyncio.to_thread(inventory, sysfs))
        vfs = [(pf, vf) for pf in table.inventory.pfs for vf in pf.vfs if pf.address in wanted]
        free = [(pf, vf) for pf, vf in vfs if not (table.owner(vf.address) or table.withheld(vf.address))]
        # A plain Ethernet card has no RDMA device, and its VFs have none.
        late[:] = [str(vf.address) for pf, vf in free if vf.netdev is None or (vf.rdma is None and pf.rdma is not None)]
        return not late

    if not await until_awaited(all_have_settled, _SETTLE_SECONDS, _LOOK_SECONDS):
        _log.warning("no netdev or RDMA device yet: %s", ", ".join(late))
