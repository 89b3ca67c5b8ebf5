"""ADD: `eth0` from the primary, then a rail for each VF that kubelet gave to the pod. Reads as its stages."""

from pathlib import Path

from cni.assignment import Assignment
from cni.hands import ExecutableGone, Hands
from cni.host import chain
from cni.host.errors import CniError
from cni.rails import Rails
from cni.request import Request, primary_as_recorded
from vf.errors import RailnetError
from vf.record import Record


async def add(request: Request, hands: Hands, assignment: Assignment, rails: Rails, root: Path) -> bytes:
    """Give the primary's result, byte for byte; a failure takes back all that was done.

    Raises:
        CniError, RailnetError, OSError: as `cni.errors` translates them.
    """
    primary = request.primary(root)
    vfs = await assignment.vfs(request)
    if not vfs:
        return await hands.drive(chain.add(primary, request.conf.runtime_config))
    record = await rails.plan(request, vfs, primary_as_recorded(primary, request.conf.runtime_config))
    try:
        result = await _eth0_then_net1(request, hands, primary, rails, record)
        rails.confirm(record)
    except BaseException as error:
        await _undo(rails, record, hands, error)
        raise
    return result


async def take_back(rails: Rails, record: Record) -> None:
    """Take back the rails of an ADD whose answer nobody received; its descriptor is closed, the record names its namespace."""
    rails.forget(await rails.detach(record, None))


async def _eth0_then_net1(
    request: Request, hands: Hands, primary: chain.Primary, rails: Rails, record: Record
) -> bytes:
    """One order, one undo; docs/decisions/0008 says why they are not overlapped."""
    result = await hands.drive(chain.add(primary, request.conf.runtime_config))
    try:
        await rails.attach(record, hands.netns_fd)
    except BaseException:
        await _undo_primary(hands, primary, request)
        raise
    return result


async def _undo(rails: Rails, record: Record, hands: Hands, error: BaseException) -> None:
    """Take the rails of a failed ADD back; the runtime is told the first error, not that of its undo."""
    try:
        rails.forget(await rails.detach(record, hands.netns_fd))
    except (OSError, RailnetError) as second:
        error.add_note(
            f"and taking its rails back failed: {second}; DEL tries again, or the sweep when the namespace is gone"
        )


async def _undo_primary(hands: Hands, primary: chain.Primary, request: Request) -> None:
    try:
        await hands.drive(chain.delete(primary, request.conf.runtime_config, None))
    except (CniError, ExecutableGone):
        return  # the first error is the one to tell; the runtime's DEL, which follows, does this again
