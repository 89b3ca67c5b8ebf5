"""GC: reclaim what belongs to no valid attachment: rails, state of the primary network, then the primary's own GC.

Before it calls GC, libcni has asked for a DEL of each stale attachment that it remembers. IPAM plugins of rails get no GC:
they know rails, not the runtime's attachments, and they get a DEL for each rail whose record is taken back.
"""

import asyncio

from cni import primary_configuration
from cni.connection import ExecutableConnection
from cni.host import chain
from cni.host.errors import IO, CniError
from cni.request import CniRequest
from cni.verbs.verb_dependencies import Parts

# Of `timeouts.add`, in which nothing new is begun after this share: what was begun then ends, and the primary is asked.
_SHARE = 0.5


async def collect(request: CniRequest, connection: ExecutableConnection, parts: Parts) -> bytes:
    """Reclaim what belongs to no valid attachment, except rails that are younger than `timeouts.add`.

    Work for which there is no time is left to the next GC; such work on the primary network is left to the daemon's own search.

    Raises:
        CniError: of the primary's chain, else code 5 with all that could not be reclaimed; the rest is done.
    """
    give_up = asyncio.get_running_loop().time() + parts.limits.add * _SHARE
    failures = await parts.recovery.collect(request.conf.valid, parts.limits.add, _left(give_up))
    primary = await primary_configuration.read(request.conf, parts.root)
    failures += await parts.primary_gc.collect(primary, request.conf.valid, _left(give_up))
    await connection.drive(chain.collect(primary, request.conf.attachments))
    if failures:
        raise CniError(IO, "; ".join(failures), "the next GC tries again")
    return b""


def _left(give_up: float) -> float:
    return max(0.0, give_up - asyncio.get_running_loop().time())
