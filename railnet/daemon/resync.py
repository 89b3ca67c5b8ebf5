"""What the daemon looks at again and again while it serves: the node's VFs, and what sandboxes left of rails."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

from cni.host import lock
from cni.recovery.sweep import Recovery
from cni.sandbox_locks import remove_unheld
from kernel import uevents
from kernel.inventory import inventory
from kernel.sysfs import Sysfs
from vf.errors import RailnetError
from vf.table import VfTable

_log = logging.getLogger(__name__)
# PCI and net changes come as uevents and link changes (`railnet.daemon.port_watch`); of a port without a netdev nothing is reported:
# everything is read again every so often.
_RESYNC_SECONDS = 10.0
_QUIET_SECONDS = 0.5  # uevents come in swarms


async def resyncing(
    table: VfTable,
    recovery: Recovery,
    sysfs: Sysfs,
    tell: Callable[[], None],
    changed: asyncio.Event,
    swept: asyncio.Event,
) -> None:
    """Read the node again, sweep, look, until cancelled; after each time `swept` is set and `tell` called.

    It begins soon after `changed` is set, which a uevent does, too, and every ten seconds.
    """
    with uevents.changes(changed):
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(changed.wait(), _RESYNC_SECONDS)
                await asyncio.sleep(_QUIET_SECONDS)
            changed.clear()
            # Each alone: what one cannot do must not keep the next from its work.
            tried = [
                await _attempt("look at the VFs again", partial(_look_again, table, sysfs)),
                await _attempt("sweep", recovery.sweep),
                await _attempt("find VFs that are not on the node", recovery.find_orphans),
                await _attempt("remove old locks", partial(asyncio.to_thread, remove_unheld, Path(lock.FOLDER))),
            ]
            swept.set()
            tell()
            for error in filter(None, tried):
                raise error  # `BackgroundTasks` begins anew, and readiness has the reason


async def _attempt(what: str, work: Callable[[], Awaitable[object]]) -> Exception | None:
    try:
        await work()
    except (OSError, ValueError, RailnetError) as error:
        _log.error("resync: it was not possible to %s: %s; it is tried again", what, error)
        return error
    return None


async def releasing_ipam(recovery: Recovery, swept: asyncio.Event) -> None:
    """Run the IPAM plugins of ended sandboxes at the start and after each sweep, in a task of its own: a plugin may hang."""
    while True:
        await recovery.release_ipam()
        await swept.wait()
        swept.clear()


async def _look_again(table: VfTable, sysfs: Sysfs) -> None:
    generation = table.generation
    table.refresh(await inventory(sysfs, table.inventory), generation)
