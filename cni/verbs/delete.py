"""DEL: the primary's chain as it was at ADD; then the runtime has its answer, and then the rails go back. Idempotent.

The runtime does not wait for the move of the rails' netdevs, which takes most of the time (docs/decisions/0061). `cni.request_handler` has them
moved after the answer: the record, whose stage is `detaching`, says so.
"""

from cni import primary_configuration
from cni.attachment import ipam_plugin
from cni.connection import ExecutableConnection
from cni.daemon_exhaustion import handing_back
from cni.host import chain
from cni.request import CniRequest
from cni.verbs.verb_dependencies import Parts
from railnet.errors import RailnetError
from railnet.vf.record import Record


async def delete(request: CniRequest, connection: ExecutableConnection, parts: Parts) -> bytes:
    """Detach a sandbox's networks; its record goes last, when nothing is left to undo.

    A record that is left has the stage `detaching`: its rails go back when the runtime has its answer.

    If the sandbox's own record was lost, there may be one under another key that was rebuilt from its namespace.

    Raises:
        CniError, RailnetError, OSError: as `cni.error_translation` translates them; the runtime calls again.
    """
    attachments = parts.attachments
    record = attachments.record(request.environment.key)
    rebuilt = attachments.rebuilt(request.netns, request.environment.ifname) if record is None else None
    if rebuilt is None:
        return await _delete(request, connection, parts, record)
    async with parts.sandboxes.held(rebuilt.key):
        return await _delete(request, connection, parts, attachments.record(rebuilt.key))


async def _delete(request: CniRequest, connection: ExecutableConnection, parts: Parts, record: Record | None) -> bytes:
    if record is None:
        with handing_back():
            primary = await primary_configuration.read(request.conf, parts.root)
        await connection.drive(chain.delete(primary, request.conf.runtime_config, request.conf.prev_result))
        return b""
    own = record.key == request.environment.key
    if record.ipam is not None or not own or parts.attachments.addresses_may_be_elsewhere(record):
        await _rails_first(request, connection, parts, record)
    else:
        await _primary_first(request, connection, parts, record)
    return b""


async def _primary_first(request: CniRequest, connection: ExecutableConnection, parts: Parts, record: Record) -> None:
    """Undo eth0, and leave a record whose rails go back after the answer. If eth0 fails, they go back before it."""
    detaching = parts.attachments.begin_detach(record)
    try:
        primary, runtime_config = await primary_configuration.at_add(detaching, request.conf, parts.root)
        await connection.drive(chain.delete(primary, runtime_config, request.conf.prev_result))
    except BaseException as error:  # a primary that fails for ever must not keep the rails, too
        try:
            await parts.attachments.detach(detaching, connection.netns_fd)
        except (OSError, RailnetError) as second:
            error.add_note(f"and taking the rails back failed: {second}; DEL tries again, or the sweep")
        raise
    if not detaching.attachments:  # they are back already, after a crash or a DEL that failed
        parts.attachments.forget(detaching)


async def _rails_first(request: CniRequest, connection: ExecutableConnection, parts: Parts, record: Record) -> None:
    """Undo all of it before the answer.

    Addresses that are not of the node's slice may be another pod's at once, so they must be on no netdev any more: an IPAM plugin gives
    them away; a static or sticky address goes to the pod that comes after this one. And a rebuilt record has another key than the
    request, so the request's turn does not protect the record after the answer.
    """
    left = await parts.attachments.detach(record, connection.netns_fd)
    primary, runtime_config = await primary_configuration.at_add(left, request.conf, parts.root)
    try:
        if left.ipam is not None:
            await connection.drive(ipam_plugin.delete(left.ipam))
    finally:  # an IPAM plugin that fails for ever must not keep eth0's address too
        await connection.drive(chain.delete(primary, runtime_config, request.conf.prev_result))
    parts.attachments.forget(left)
