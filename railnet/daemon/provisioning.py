"""The VFs that the configuration wants, made at the daemon's start; `vf.provision` decides."""

import asyncio
import logging

from kernel import perform
from kernel.netlink import vf_links
from kernel.sysfs import Sysfs
from railnet.configuration import Configuration
from railnet.daemon import vf_holders
from vf import provision
from vf.table import VfTable

_log = logging.getLogger(__name__)
_SETTLE_SECONDS = 5.0
_LOOK_SECONDS = 0.05


async def make_vfs(configuration: Configuration, table: VfTable, sysfs: Sysfs) -> None:
    """Make the VFs that are missing, with their GUIDs and drivers, and have the table know them.

    Raises:
        OSError: what the kernel refused. Misconfigured: the configuration does not fit the node. NotReady: VFs do not
            appear, or some are to be made and nobody knows what is in use.
    """
    if _is_for_other_nodes(configuration, table):
        _log.info("provision: this node has no InfiniBand card, so there is nothing to make")
        return
    # kubelet's word counts only where VFs are to be made: a checkpoint that is not understood ends no daemon that makes none.
    if provision.create(configuration.provision, table.inventory, ()):
        await _create(configuration, table, sysfs)
    # What recovery has waited for, or somebody else is at, may have a driver by now: to bind it again is EBUSY.
    table.refresh(await asyncio.to_thread(sysfs.inventory))
    pfs = [pf for entry in configuration.provision if (pf := table.inventory.pf(entry.pf)) is not None]
    macs = await asyncio.to_thread(vf_links.macs, pfs)
    bind = provision.name_and_bind(configuration.provision, table.inventory, macs)
    await asyncio.to_thread(perform.provision, bind, sysfs)
    await _settle(configuration, table, sysfs)


async def _create(configuration: Configuration, table: VfTable, sysfs: Sysfs) -> None:
    vfs = [(pf, vf) for pf in table.inventory.pfs for vf in pf.vfs]
    # A VF with a driver whose netdev is elsewhere is in some pod, whoever put it there.
    in_use = {vf.address for pf, vf in vfs if table.owner(vf.address) or (vf.driver and pf.netdev and not vf.netdev)}
    in_use |= vf_holders.allocated(configuration)
    create = provision.create(configuration.provision, table.inventory, in_use)
    for step in create:
        _log.info("PF %s: making %d VFs", step.pf, step.count)
    for step in provision.create(configuration.provision, table.inventory, ()):
        if step not in create:
            _log.warning(
                "PF %s keeps its %d VFs, since some are in use: %d are made when the daemon starts while none is",
                step.pf,
                step.replaced,
                step.count,
            )
    await asyncio.to_thread(perform.provision, create, sysfs)


def _is_for_other_nodes(configuration: Configuration, table: VfTable) -> bool:
    """Tell whether `provision` names only PFs of other nodes: one configuration may serve those without a card, too."""
    pfs = table.inventory.pfs
    named = {entry.pf for entry in configuration.provision}
    return not any(pf.address in named or pf.link_layer == "InfiniBand" for pf in pfs)


async def _settle(configuration: Configuration, table: VfTable, sysfs: Sysfs) -> None:
    """Wait a little until the VFs that were bound have their netdevs and RDMA devices; kubelet then sees them healthy.

    One that is not given out whatever becomes of it is not waited for: its netdev was looked for everywhere.
    """
    give_up = asyncio.get_running_loop().time() + _SETTLE_SECONDS
    wanted = {entry.pf for entry in configuration.provision}
    while True:
        table.refresh(await asyncio.to_thread(sysfs.inventory))
        vfs = [(pf, vf) for pf in table.inventory.pfs for vf in pf.vfs if pf.address in wanted]
        free = [(pf, vf) for pf, vf in vfs if not (table.owner(vf.address) or table.withheld(vf.address))]
        # A plain Ethernet card has no RDMA device, and then neither have its VFs.
        late = [str(vf.address) for pf, vf in free if vf.netdev is None or (vf.rdma is None and pf.rdma is not None)]
        if not late:
            return
        if asyncio.get_running_loop().time() > give_up:
            _log.warning("no netdev or RDMA device yet: %s", ", ".join(late))
            return
        await asyncio.sleep(_LOOK_SECONDS)
