"""GC: reclaim what belongs to no valid attachment: rails, state of the primary network, then the primary's own GC.

Before it calls GC, libcni has asked for a DEL of each stale attachment that it remembers. IPAM plugins of rails get no GC:
they know rails, not the runtime's attachments, and they get a DEL for each rail whose record is taken back.
"""

from cni import primary_configuration
from cni.connection import ExecutableConnection
from cni.host import chain
from cni.host.errors import IO, CniError
from cni.request import Request
from cni.verbs.parts import Parts


async def collect(request: Request, connection: ExecutableConnection, parts: Parts) -> bytes:
    """Reclaim what belongs to no valid attachment, except rails that are younger than `timeouts.add`.

    Raises:
        CniError: of the primary's chain, else code 5 with all that could not be reclaimed; the rest is done.
    """
    failures = await parts.recovery.collect(request.conf.valid, parts.limits.add)
    primary = primary_configuration.read(request.conf, parts.root)
    failures += await parts.primary_gc.collect(primary, request.conf.valid)
    await connection.drive(chain.collect(primary, request.conf.attachments))
    if failures:
        raise CniError(IO, "; ".join(failures), "the next GC tries again")
    return b""
