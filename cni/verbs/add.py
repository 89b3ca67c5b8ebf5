"""ADD: `eth0` from the primary network, then a rail for each VF that kubelet gave to the pod. Reads as its stages."""

from cni import primary_configuration, stale_allocate_response_check
from cni.attachment import ipam_plugin
from cni.attachment.attachments import Attachments
from cni.connection import ExecutableConnection, ExecutableGone
from cni.daemon_exhaustion import handing_back
from cni.host import chain
from cni.host.environment import ADD
from cni.host.errors import CniError, NotExecuted, TimedOut
from cni.pod_devices import vfs_of
from cni.request import CniRequest
from cni.timing import timed
from cni.verbs.verb_dependencies import Parts
from railnet.errors import RailnetError
from railnet.vf.record import Record


async def add(request: CniRequest, connection: ExecutableConnection, parts: Parts) -> bytes:
    """Return the primary's result, byte for byte. An ADD that fails undoes all that it did.

    Raises:
        CniError, RailnetError, OSError: as `cni.error_translation` translates them. HandedBack: nothing was done.
    """
    attachments, pod = parts.attachments, request.pod
    with handing_back():
        primary = await primary_configuration.read(request.conf, parts.root, ADD)
        devices = await parts.devices.of(pod)
    if not devices:
        return await connection.drive(chain.add(primary, request.conf.runtime_config))
    vfs = vfs_of(devices)
    attachments.permit(pod, {resource for resource, _ in devices})
    holders = {vf: owner.pod_uid for vf in vfs if (owner := attachments.attached(vf)) is not None}
    await parts.devices.refuse_held_by_other_pods(pod, holders)
    await _take_back_unfinished(request, connection, attachments)
    with timed("plan"):
        record = await attachments.plan(request, vfs, primary)
    try:
        answers = await parts.devices.allocations(pod)
        stale_allocate_response_check.check(answers, record.attachments, parts.root)
        return await _eth0_then_net1(request, connection, primary, parts, record)
    except BaseException as error:
        await _undo(attachments, record, connection, error)
        raise


async def _take_back_unfinished(
    request: CniRequest, connection: ExecutableConnection, attachments: Attachments
) -> None:
    """Undo an ADD of this sandbox that died with its daemon: the executable, which lives, sends the same request to the next daemon.

    The primary is undone already (`cni.host.without_daemon`). An ADD that is done stays: then the runtime must DEL.
    """
    record = attachments.record(request.environment.key)
    if record is None or record.stage == "attached":
        return
    left = await attachments.detach(record, connection.netns_fd)
    if left.ipam is not None:
        await connection.drive(ipam_plugin.delete(left.ipam))
    attachments.forget(left)


async def _eth0_then_net1(
    request: CniRequest, connection: ExecutableConnection, primary: chain.Primary, parts: Parts, record: Record
) -> bytes:
    """Attach eth0, then the rails: one order, one undo. docs/decisions/0008 says why the two do not overlap."""
    attachments = parts.attachments
    result = await connection.drive(chain.add(primary, request.conf.runtime_config))
    try:
        if record.ipam is not None:
            record = attachments.record_addresses(record, await connection.drive(ipam_plugin.add(record.ipam)))
        await attachments.attach(record, connection.netns_fd)
        with timed("kubelet"):
            await parts.devices.until_watched()
        attachments.confirm(record)
    except BaseException:
        await _undo_primary(connection, primary, request)
        raise
    attachments.announce(record)
    return result


async def _undo(
    attachments: Attachments, record: Record, connection: ExecutableConnection, error: BaseException
) -> None:
    """Detach the rails of a failed ADD. The runtime gets the ADD's error; an error of the undo is a note to it."""
    try:
        left = await attachments.detach(record, connection.netns_fd)
        if left.ipam is not None and isinstance(error, TimedOut) and error.plugin == left.ipam.conf["ipam"]["type"]:
            return  # it would hang again; the record stays for the runtime's DEL, or for the sweep
        if left.ipam is not None and not isinstance(error, NotExecuted):
            await connection.drive(ipam_plugin.delete(left.ipam))
        attachments.forget(left)
    except (OSError, RailnetError, CniError, ExecutableGone) as second:
        error.add_note(
            f"and taking its rails back failed: {second}; DEL tries again, or the sweep when the namespace is gone"
        )


async def _undo_primary(connection: ExecutableConnection, primary: chain.Primary, request: CniRequest) -> None:
    try:
        await connection.drive(chain.delete(primary, request.conf.runtime_config, None))
    except (CniError, ExecutableGone):
        return  # the ADD's own error is the one to report; the runtime's DEL, which follows, runs this again
