"""GC: what sandboxes have that the runtime does not list: rails, the primary's leftovers, then the primary's own GC.

libcni has asked for a DEL of each stale attachment that it remembers before it calls this. IPAM plugins of rails are not
asked: their books have rails, not attachments, and a record that is taken back has told them.
"""

from pathlib import Path
from typing import NamedTuple

from cni.connection import ExecutableConnection
from cni.host import chain
from cni.host.errors import IO, CniError
from cni.primary_gc.collector import PrimaryGc
from cni.recovery.sweep import Recovery
from cni.request import Request


class Collectors(NamedTuple):
    """Who knows the rails of dead sandboxes, and who knows what dead containers left of the primary network."""

    recovery: Recovery
    leftovers: PrimaryGc


async def collect(
    request: Request, connection: ExecutableConnection, collectors: Collectors, root: Path, younger_than: float
) -> bytes:
    """Collect what belongs to no valid attachment; `younger_than` as `Recovery.collect` has it.

    Raises:
        CniError: of the primary's chain, else code 5 with all that could not be taken back; the rest is done.
    """
    failures = await collectors.recovery.collect(request.conf.valid, younger_than)
    primary = request.primary(root)
    failures += await collectors.leftovers.collect(primary, request.conf.valid)
    await connection.drive(chain.collect(primary, request.conf.attachments))
    if failures:
        raise CniError(IO, "; ".join(failures), "the next GC tries again")
    return b""
