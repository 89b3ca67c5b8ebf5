"""When the daemon looks for what dead pods left of the primary network: at its start, and every minute."""

import asyncio
import logging

from cni.host import chain
from cni.host.chain import Primary
from cni.host.errors import CniError
from cni.primary_gc.collector import PrimaryGc
from kernel.files import read_below
from railnet.configuration import Configuration
from railnet.daemon import conflist_content
from vf.errors import Misconfigured

_log = logging.getLogger(__name__)
_SWEEP_SECONDS = 60.0


async def sweeping(configuration: Configuration, leftovers: PrimaryGc) -> None:
    """Sweep until cancelled. In a task of its own: a plugin may hang, and nobody waits for it."""
    while True:
        primary = await asyncio.to_thread(_primary, configuration)
        if primary is not None:
            await _sweep(leftovers, primary)
        await asyncio.sleep(_SWEEP_SECONDS)


async def _sweep(leftovers: PrimaryGc, primary: Primary) -> None:
    try:
        await leftovers.sweep(primary)
    except Exception:  # noqa: BLE001 - what is read was written by others; a broom that breaks must not end the daemon
        _log.exception("leftovers of network %s are not looked at", primary.name)


def _primary(configuration: Configuration) -> Primary | None:
    """Read the primary's configuration; None while there is none, which others say (`railnet.daemon.conflist_keeper`)."""
    try:
        path = conflist_content.find_primary(configuration.host.root, configuration)
        return chain.parse(read_below(configuration.host.root, path), path)
    except (Misconfigured, CniError, OSError, ValueError) as error:  # ValueError: `primary` has a NUL
        _log.debug("nothing is swept: %s", error)
        return None
