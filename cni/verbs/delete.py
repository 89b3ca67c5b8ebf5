"""DEL: the rails first, then the primary's chain as it was at ADD. Idempotent. Reads as its stages."""

from cni import primary_configuration
from cni.attachment import ipam_plugin
from cni.connection import ExecutableConnection
from cni.host import chain
from cni.own_shortage import handing_back
from cni.request import Request
from cni.verbs.parts import Parts
from vf.record import Record


async def delete(request: Request, connection: ExecutableConnection, parts: Parts) -> bytes:
    """Detach a sandbox's networks; its record goes last, when nothing is left to undo.

    If the sandbox's own record was lost, there may be one under another key that was rebuilt from its namespace.

    Raises:
        CniError, RailnetError, OSError: as `cni.error_codes` translates them; the runtime calls again.
    """
    attachments = parts.attachments
    record = attachments.record(request.environment.key)
    rebuilt = attachments.rebuilt(request.netns, request.environment.ifname) if record is None else None
    if rebuilt is None:
        return await _delete(request, connection, parts, record)
    async with parts.sandboxes.held(rebuilt.key):
        return await _delete(request, connection, parts, attachments.record(rebuilt.key))


async def _delete(request: Request, connection: ExecutableConnection, parts: Parts, record: Record | None) -> bytes:
    prev_result = request.conf.prev_result
    if record is None:
        with handing_back():
            primary = primary_configuration.read(request.conf, parts.root)
        await connection.drive(chain.delete(primary, request.conf.runtime_config, prev_result))
        return b""
    left = await parts.attachments.detach(record, connection.netns_fd)
    primary, runtime_config = primary_configuration.at_add(left, request.conf, parts.root)
    try:
        if left.ipam is not None:
            await connection.drive(ipam_plugin.delete(left.ipam))
    finally:  # an IPAM plugin that fails for ever must not keep eth0's address too
        await connection.drive(chain.delete(primary, runtime_config, prev_result))
    parts.attachments.forget(left)
    return b""
