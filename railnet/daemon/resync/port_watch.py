"""A PF's port goes down or up: the VF table has it within milliseconds, and ListAndWatch sends it at once.

The kernel reports the link of a PF's netdev. With InfiniBand the carrier of the IPoIB netdev follows the port while the netdev is
up. A PF without a netdev, or with one that is down, is left to the ten-second resync (`railnet.daemon.resync.periodic_resync`).

The first second of the daemon is for the requests that have waited for it: only then all ports are read. Changes in between are not
lost.
"""

import logging
from collections.abc import Callable, Iterable, Mapping

from railnet.daemon.resync.resync_requests import ResyncRequests
from railnet.kernel.inventory import reread_pfs
from railnet.kernel.netlink import link_changes
from railnet.kernel.netlink.pf_link_state import PfLink
from railnet.kernel.sysfs.functions import Sysfs
from railnet.vf.inventory import PhysicalFunction
from railnet.vf.vf_table import VfTable

_log = logging.getLogger(__name__)
_FIRST_SECONDS = 1.0


async def watching_ports(
    table: VfTable, sysfs: Sysfs, port_changed: Callable[[], None], requests: ResyncRequests
) -> None:
    """Read a PF again after its link has changed, until cancelled.

    If the facts differ, `port_changed` is called, and the resync is asked to read these PFs with their VFs.
    """

    def by_ifindex() -> dict[int, PhysicalFunction]:
        return {pf.netdev.ifindex: pf for pf in table.inventory.pfs if pf.netdev is not None}

    def ask_for(pfs: Iterable[PhysicalFunction]) -> None:
        for pf in pfs:
            requests.card(pf.address)

    async def look(links: Mapping[int, PfLink | None]) -> None:
        changed = [pf for ifindex, pf in by_ifindex().items() if ifindex in links]
        try:
            newer = await reread_pfs(sysfs, changed, links)
        except (OSError, ValueError) as error:
            _log.error("port watch: %s", error)
            ask_for(changed)
            return
        before = table.inventory
        table.reread_pfs(newer)
        if table.inventory != before:
            port_changed()
            ask_for(changed)

    await link_changes.watch(by_ifindex, table.observe, look, _FIRST_SECONDS)
