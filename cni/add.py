"""ADD: `eth0` from the primary, then a rail for each VF that kubelet gave to the pod. Reads as its stages."""

from pathlib import Path

from cni.assignment import Assignment
from cni.hands import Hands
from cni.host import chain
from cni.host.errors import CniError
from cni.host.frames import FrameError
from cni.rails import Rails
from cni.request import Request, primary_as_recorded
from kernel.files import below
from vf.record import Record


async def add(request: Request, hands: Hands, assignment: Assignment, rails: Rails, root: Path) -> bytes:
    """Give the primary's result, byte for byte; a failure takes back all that was done.

    Raises:
        CniError, RailnetError, OSError: as `cni.errors` translates them.
    """
    primary = chain.load(str(below(root, request.conf.primary)))
    vfs = await assignment.vfs(request)
    if not vfs:
        return await hands.drive(chain.add(primary, request.conf.runtime_config))
    record = await rails.plan(request, vfs, primary_as_recorded(primary, request.conf.runtime_config))
    try:
        result = await hands.drive(chain.add(primary, request.conf.runtime_config))
        try:
            await rails.attach(record, request.netns_fd if request.netns_fd is not None else -1)
        except BaseException:
            await _undo_primary(hands, primary, request)
            raise
    except BaseException:
        await undo(rails, record, request)
        raise
    return result


async def undo(rails: Rails, record: Record, request: Request) -> None:
    """Take the rails of an ADD back, that failed or whose answer nobody received."""
    rails.forget(await rails.detach(record, request.netns_fd))


async def _undo_primary(hands: Hands, primary: chain.Primary, request: Request) -> None:
    try:
        await hands.drive(chain.delete(primary, request.conf.runtime_config, None))
    except (CniError, FrameError, OSError):
        return  # the first error is the one to tell; the runtime's DEL, which follows, does this again
