"""Looks again and again while the daemon serves: at the node's VFs, and at what sandboxes left of rails."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

from cni.host import lock
from cni.recovery.sweep import Recovery
from cni.sandbox_locks import remove_unheld
from railnet.daemon.resync.resync_requests import ResyncRequests
from railnet.errors import RailnetError
from railnet.kernel.inventory import inventory, reread
from railnet.kernel.netlink import uevents
from railnet.kernel.sysfs.functions import Sysfs
from railnet.vf import orphan_rescue
from railnet.vf.changed_functions import EVERYTHING, ChangedFunctions
from railnet.vf.vf_table import VfTable

_log = logging.getLogger(__name__)
# PCI and net changes come as uevents and link changes (`railnet.daemon.resync.port_watch`); of a port without a netdev nothing is reported:
# everything is read again every so often.
_RESYNC_SECONDS = 10.0
_QUIET_SECONDS = 0.5  # uevents come in swarms


async def resyncing(
    table: VfTable,
    recovery: Recovery,
    sysfs: Sysfs,
    tell: Callable[[], None],
    requests: ResyncRequests,
    looked: asyncio.Event,
) -> None:
    """Read soon what a uevent or another task has named, and every ten seconds the whole node; until cancelled.

    The sweep follows where it may find something. After each look `looked` is set, and `tell` is called unless nothing has changed.
    """
    loop = asyncio.get_running_loop()
    with uevents.changes(requests.name):
        due = loop.time() + _RESYNC_SECONDS
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout_at(due) as until_due:
                    await requests.wait()
                    await asyncio.sleep(_QUIET_SECONDS)
            changed = requests.take()
            if until_due.expired():
                changed = EVERYTHING
            before = table.inventory
            tried = [await _attempt("look at the VFs again", partial(look_again, table, sysfs, changed))]
            if may_sweep := tried != [None] or _may_be_left(table, changed):
                tried += await _swept(recovery)
            if any(tried) and not changed.everything:
                requests.everything()  # uevents are lost until this begins anew, and the ten seconds begin anew, too
            looked.set()
            if may_sweep or table.inventory is not before:
                tell()
            for error in filter(None, tried):
                raise error  # `BackgroundTasks` begins anew, and readiness has the reason
            if changed.everything:
                due = loop.time() + _RESYNC_SECONDS


async def look_again(table: VfTable, sysfs: Sysfs, changed: ChangedFunctions) -> None:
    """Read what has changed, and have the table know it; what an ADD or a DEL has read meanwhile is newer.

    Raises:
        OSError: the root is not a sysfs, or the daemon lacks descriptors or memory.
    """
    generation = table.generation
    if changed.everything:
        table.refresh(await inventory(sysfs, table.inventory), generation)
    else:
        reading = await reread(sysfs, table.inventory, changed)
        table.refresh(reading.merged_into(table.inventory), generation)


def _may_be_left(table: VfTable, changed: ChangedFunctions) -> bool:
    """Return whether a sweep may find something: unless each changed VF is where the table expects it, as after an ADD or a DEL."""
    if changed.everything or changed.cards:
        return True
    vfs = [vf for vf in table.inventory.vfs() if vf.address in changed.functions]
    pfs = any(pf.address in changed.functions for pf in table.inventory.pfs)
    # A sweep alone takes back why a VF was withheld, such as a netdev that was absent and is here again.
    at_rest = (
        orphan_rescue.is_at_rest(vf, owned=table.owner(vf.address) is not None) and table.withheld(vf.address) is None
        for vf in vfs
    )
    return pfs or not all(at_rest)


async def _swept(recovery: Recovery) -> list[Exception | None]:
    # Each alone: what one cannot do must not keep the next from its work.
    return [
        await _attempt("sweep", recovery.sweep),
        await _attempt("find VFs that are not on the node", recovery.find_orphans),
        await _attempt("remove old locks", partial(asyncio.to_thread, remove_unheld, Path(lock.FOLDER))),
    ]


async def _attempt(what: str, work: Callable[[], Awaitable[object]]) -> Exception | None:
    try:
        await work()
    except (OSError, ValueError, RailnetError) as error:
        _log.error("resync: it was not possible to %s: %s; it is tried again", what, error)
        return error
    return None


async def releasing_ipam(recovery: Recovery, looked: asyncio.Event) -> None:
    """Run the IPAM plugins of ended sandboxes at the start and after each look, in a task of its own: a plugin may hang."""
    while True:
        await recovery.release_ipam()
        await looked.wait()
        looked.clear()
