"""Reclaim what dead pods left of the primary network: at the daemon's start, and every minute."""

import asyncio
import logging
from functools import partial

from cni.host import chain
from cni.host.chain import Primary
from cni.host.errors import CniError
from cni.primary_configuration import read_folder
from cni.primary_gc.collector import PrimaryGc
from railnet.configuration import Configuration
from railnet.daemon.conflist import conflist
from railnet.daemon.conflist.conflist import ConflistFolder
from railnet.errors import Misconfigured
from railnet.kernel.files import read_below

_log = logging.getLogger(__name__)
_SWEEP_SECONDS = 60.0


async def sweeping(configuration: Configuration, primary_gc: PrimaryGc) -> None:
    """Sweep until cancelled. This has a task of its own, because a plugin may hang."""
    while True:
        primary = await asyncio.to_thread(_primary, configuration)
        if primary is not None:
            await _sweep(primary_gc, primary)
        await asyncio.sleep(_SWEEP_SECONDS)


async def _sweep(primary_gc: PrimaryGc, primary: Primary) -> None:
    try:
        await primary_gc.sweep(primary)
    except Exception:  # noqa: BLE001 - other programs wrote what is read; a failed sweep must not end the daemon
        _log.exception("leftovers of network %s were not reclaimed; the next try is in a minute", primary.name)


def _primary(configuration: Configuration) -> Primary | None:
    """Read the primary's configuration; None while there is none, which `railnet.daemon.conflist.keeper` reports."""
    try:
        root = configuration.host.root
        path = conflist.find_primary(ConflistFolder.of(configuration.host), configuration)
        return chain.parse(read_below(root, path), path, read_folder=partial(read_folder, root))
    except (Misconfigured, CniError, OSError, ValueError) as error:  # ValueError: `primary` has a NUL
        _log.debug("the primary network is not swept: %s", error)
        return None
