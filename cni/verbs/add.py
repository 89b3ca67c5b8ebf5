"""ADD: `eth0` from the primary, then a rail for each VF that kubelet gave to the pod. Reads as its stages."""

from pathlib import Path

from cni import allocated_devices
from cni.attachment import ipam_plugin
from cni.attachment.attachments import Attachments
from cni.connection import ExecutableConnection, ExecutableGone
from cni.host import chain
from cni.host.errors import CniError, NotExecuted
from cni.pod_devices import PodDevices, vfs_of
from cni.request import Request
from cni.timing import stage
from vf.address import PciAddress
from vf.errors import RailnetError
from vf.record import Record


async def add(
    request: Request, connection: ExecutableConnection, assignment: PodDevices, rails: Attachments, root: Path
) -> bytes:
    """Give the primary's result, byte for byte; a failure takes back all that was done.

    Raises:
        CniError, RailnetError, OSError: as `cni.errors` translates them.
    """
    primary = request.primary(root)
    devices = await assignment.devices(request)
    if not devices:
        return await connection.drive(chain.add(primary, request.conf.runtime_config))
    vfs = vfs_of(devices)
    rails.permit(request.pod, {resource for resource, _ in devices})
    assignment.refuse_others(vfs, lambda vf: _other_pod(request, rails, vf))
    with stage("plan"):
        record = await rails.plan(request, vfs, primary)
    try:
        allocated_devices.check(assignment.answers(request), record.attachments, root)
        return await _eth0_then_net1(request, connection, primary, assignment, rails, record)
    except BaseException as error:
        await _undo(rails, record, connection, error)
        raise


async def _eth0_then_net1(
    request: Request,
    connection: ExecutableConnection,
    primary: chain.Primary,
    assignment: PodDevices,
    rails: Attachments,
    record: Record,
) -> bytes:
    """One order, one undo; docs/decisions/0008 says why they are not overlapped."""
    result = await connection.drive(chain.add(primary, request.conf.runtime_config))
    try:
        if record.ipam is not None:
            record = rails.address(record, await connection.drive(ipam_plugin.add(record.ipam)))
        await rails.attach(record, connection.netns_fd)
        with stage("kubelet"):
            await assignment.until_watched()
        rails.confirm(record)
    except BaseException:
        await _undo_primary(connection, primary, request)
        raise
    rails.announce(record)
    return result


def _other_pod(request: Request, rails: Attachments, vf: PciAddress) -> str | None:
    owner = rails.attached(vf)
    return None if owner is None or owner.pod_uid == request.pod.uid else owner.pod_uid


async def _undo(rails: Attachments, record: Record, connection: ExecutableConnection, error: BaseException) -> None:
    """Take the rails of a failed ADD back; the runtime is told the first error, not that of its undo."""
    try:
        left = await rails.detach(record, connection.netns_fd)
        if left.ipam is not None and not isinstance(error, NotExecuted):
            await connection.drive(ipam_plugin.delete(left.ipam))
        rails.forget(left)
    except (OSError, RailnetError, CniError, ExecutableGone) as second:
        error.add_note(
            f"and taking its rails back failed: {second}; DEL tries again, or the sweep when the namespace is gone"
        )


async def _undo_primary(connection: ExecutableConnection, primary: chain.Primary, request: Request) -> None:
    try:
        await connection.drive(chain.delete(primary, request.conf.runtime_config, None))
    except (CniError, ExecutableGone):
        return  # the first error is the one to tell; the runtime's DEL, which follows, does this again
