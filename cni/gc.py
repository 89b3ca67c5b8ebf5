"""GC: rails of sandboxes that the runtime does not list, then the primary's own GC. Reads as its stages.

What the primary's plugins left is theirs to collect, where they can; libcni has asked for a DEL of each stale attachment
that it remembers before it calls this. IPAM plugins of rails are not asked: their books have rails, not attachments, and a
record that is taken back has told them.
"""

from pathlib import Path

from cni.hands import Hands
from cni.host import chain
from cni.host.errors import IO, CniError
from cni.recovery import Recovery
from cni.request import Request


async def collect(request: Request, hands: Hands, recovery: Recovery, root: Path, younger_than: float) -> bytes:
    """Collect what belongs to no valid attachment; `younger_than` as `Recovery.collect` has it.

    Raises:
        CniError: of the primary's chain, else code 5 with all that could not be taken back; the rest is done.
    """
    failures = await recovery.collect(request.conf.valid, younger_than)
    await hands.drive(chain.collect(request.primary(root), request.conf.attachments))
    if failures:
        raise CniError(IO, "; ".join(failures), "the next GC tries again")
    return b""
