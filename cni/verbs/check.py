"""CHECK: the primary's chain as it was at ADD, then each rail against the kernel. Reads as its stages."""

from cni import primary_configuration
from cni.connection import ExecutableConnection
from cni.daemon_exhaustion import handing_back
from cni.host import chain
from cni.request import CniRequest
from cni.verbs.verb_dependencies import Parts
from railnet.errors import Differs


async def check(request: CniRequest, connection: ExecutableConnection, parts: Parts) -> bytes:
    """Find out whether a sandbox still has what ADD attached; change nothing.

    Raises:
        Differs: it has not. CniError, RailnetError, OSError: as `cni.error_translation` translates them.
    """
    conf = request.conf
    record = parts.attachments.record(request.environment.key)
    if record is None:
        with handing_back():
            primary = await primary_configuration.read(request.conf, parts.root)
        await connection.drive(chain.check(primary, conf.runtime_config, conf.prev_result))
        if vfs := await parts.devices.vfs(request.pod):
            raise Differs(f"kubelet gave this pod {', '.join(map(str, vfs))}, but its sandbox has no rail")
        return b""
    primary, runtime_config = await primary_configuration.at_add(record, request.conf, parts.root)
    await connection.drive(chain.check(primary, runtime_config, conf.prev_result))
    difference = await parts.attachments.difference(record, request.netns, connection.netns_fd)
    if difference is not None:
        raise Differs(difference)
    return b""
