"""DEL: rails back first, then the primary's chain as it was at ADD. Idempotent. Reads as its stages."""

from pathlib import Path

from cni import ipam
from cni.hands import Hands
from cni.host import chain
from cni.rails import Rails
from cni.request import Request, recorded_primary


async def delete(request: Request, hands: Hands, rails: Rails, root: Path) -> bytes:
    """Take a sandbox's networks away; its record goes last, when nothing is left to do.

    Raises:
        CniError, RailnetError, OSError: as `cni.errors` translates them; the runtime calls again.
    """
    record = rails.record(request.environment.key)
    if record is None:
        primary = request.primary(root)
        await hands.drive(chain.delete(primary, request.conf.runtime_config, request.conf.prev_result))
        return b""
    left = await rails.detach(record, hands.netns_fd)
    primary, runtime_config = recorded_primary(left)
    try:
        if left.ipam is not None:
            await hands.drive(ipam.delete(left.ipam))
    finally:  # an IPAM plugin that fails for ever must not keep eth0's address too
        await hands.drive(chain.delete(primary, runtime_config, request.conf.prev_result))
    rails.forget(left)
    return b""
