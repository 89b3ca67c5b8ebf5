"""The primary network's configuration: read from the host for an ADD, kept in a record, decoded from it for CHECK and DEL.

`cni.host.chain` checks what a configuration may say.
"""

from functools import partial
from pathlib import Path
from typing import Any

from cni.daemon_exhaustion import is_own_shortage
from cni.host import chain
from cni.host.chain import Primary
from cni.host.errors import CONFIGURATION, TRY_AGAIN, CniError
from cni.host.netconf import NetConf
from railnet.kernel.files import read_below
from railnet.kernel.threads.file_reads import read_in_time
from railnet.vf.record import Record


async def read(conf: NetConf, root: Path) -> Primary:
    """Read the primary configuration from the host, whose mount namespace is seen at `root`.

    Raises:
        CniError: code 7, it is missing, unreadable, broken, or names Railnet itself; code 11, its disk does not answer.
        OSError: the daemon has no descriptor for it.
    """
    path = conf.primary
    try:
        return chain.parse(await read_in_time(path, partial(read_below, root, path)), path, conf.version)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        if isinstance(error, OSError) and is_own_shortage(error):
            raise
        if isinstance(error, TimeoutError):  # the class of ETIMEDOUT
            raise CniError(TRY_AGAIN, f"the primary configuration {path} is {error.strerror}") from None
        why = getattr(error, "strerror", None) or error
        raise CniError(CONFIGURATION, f"the primary configuration {path} cannot be read: {why}") from None


def as_recorded(primary: Primary, runtime_config: dict[str, object]) -> dict[str, object]:
    """Encode the primary for a record, so that CHECK and DEL run what ADD ran although the file may have changed.

    Of `runtime_config` only what some plugin of the primary takes is kept: a pod's annotations can be long.
    """
    conf = {
        "name": primary.name,
        "cniVersion": primary.version,
        "plugins": primary.plugins,
        "disableCheck": primary.disable_check,
    }
    taken = {key for plugin in primary.plugins for key, on in (plugin.get("capabilities") or {}).items() if on}
    return {"conf": conf, "runtimeConfig": {key: value for key, value in runtime_config.items() if key in taken}}


async def at_add(record: Record, conf: NetConf, root: Path) -> tuple[Primary, dict[str, Any]]:
    """Return the primary that a sandbox's ADD ran, with its `runtimeConfig`; today's primary if the record was rebuilt.

    Raises:
        CniError: as `read`.
    """
    if record.rebuilt:
        return await read(conf, root), conf.runtime_config
    recorded = record.primary["conf"]
    primary = Primary(recorded["name"], recorded["cniVersion"], recorded["plugins"], recorded["disableCheck"])
    return primary, record.primary["runtimeConfig"]
