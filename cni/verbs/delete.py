"""DEL: rails back first, then the primary's chain as it was at ADD. Idempotent. Reads as its stages."""

from pathlib import Path

from cni.attachment import ipam_plugin
from cni.attachment.attachments import Attachments
from cni.connection import ExecutableConnection
from cni.host import chain
from cni.request import Request, primary_at_add
from vf.record import Record


async def delete(request: Request, connection: ExecutableConnection, rails: Attachments, root: Path) -> bytes:
    """Take a sandbox's networks away; its record goes last, when nothing is left to do.

    Where its own record was lost it may have one that was made from what its namespace has.

    Raises:
        CniError, RailnetError, OSError: as `cni.errors` translates them; the runtime calls again.
    """
    record = rails.record(request.environment.key)
    other = rails.adopted(request.netns, request.environment.ifname) if record is None else None
    if other is None:
        return await _delete(request, connection, rails, record, root)
    async with rails.one_at_a_time.held(other.key):
        return await _delete(request, connection, rails, rails.record(other.key), root)


async def _delete(
    request: Request, connection: ExecutableConnection, rails: Attachments, record: Record | None, root: Path
) -> bytes:
    if record is None:
        primary = request.primary(root)
        await connection.drive(chain.delete(primary, request.conf.runtime_config, request.conf.prev_result))
        return b""
    left = await rails.detach(record, connection.netns_fd)
    primary, runtime_config = primary_at_add(request, left, root)
    try:
        if left.ipam is not None:
            await connection.drive(ipam_plugin.delete(left.ipam))
    finally:  # an IPAM plugin that fails for ever must not keep eth0's address too
        await connection.drive(chain.delete(primary, runtime_config, request.conf.prev_result))
    rails.forget(left)
    return b""
