"""CHECK: the primary's chain as it was at ADD, then each rail against the kernel. Reads as its stages."""

from pathlib import Path

from cni.attachment.attachments import Attachments
from cni.connection import ExecutableConnection
from cni.host import chain
from cni.pod_devices import PodDevices
from cni.request import Request, primary_at_add
from vf.errors import Differs


async def check(
    request: Request, connection: ExecutableConnection, assignment: PodDevices, rails: Attachments, root: Path
) -> bytes:
    """Find out whether a sandbox still has what ADD gave it; changes nothing.

    Raises:
        Differs: it has not. CniError, RailnetError, OSError: as `cni.errors` translates them.
    """
    conf = request.conf
    record = rails.record(request.environment.key)
    if record is None:
        await connection.drive(chain.check(request.primary(root), conf.runtime_config, conf.prev_result))
        if vfs := await assignment.vfs(request):
            raise Differs(f"kubelet gave this pod {', '.join(map(str, vfs))}, but its sandbox has no rail")
        return b""
    primary, runtime_config = primary_at_add(request, record, root)
    await connection.drive(chain.check(primary, runtime_config, conf.prev_result))
    difference = await rails.difference(record, request.netns, connection.netns_fd)
    if difference is not None:
        raise Differs(difference)
    return b""
