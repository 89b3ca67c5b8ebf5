"""The primary network's configuration: read from the host for an ADD, kept in a record, decoded from it for CHECK and DEL.

`cni.host.chain` checks what a configuration may say.
"""

import os
from functools import partial
from pathlib import Path
from typing import Any

from cni.daemon_exhaustion import is_own_shortage
from cni.host import appended_plugins, chain, plugin_configuration_folder
from cni.host.chain import Primary
from cni.host.environment import ADD
from cni.host.errors import TRY_AGAIN, CniError
from cni.host.netconf import NetConf
from railnet.kernel.files import open_below, read_below
from railnet.kernel.threads.file_reads import read_in_time
from railnet.vf.record import Record


def load(root: Path, path: str, asked: str = chain.NEWEST_WITHOUT_LISTS) -> Primary:
    """Read the primary configuration at `path` of the host, whose mount namespace is seen at `root`, with its folder of plugins.

    Raises:
        CniError: code 7, it is broken, or names Railnet itself. OSError, ValueError: it cannot be read.
    """
    return chain.parse(read_below(root, path), path, asked, partial(read_folder, root))


def read_folder(root: Path, folder: str) -> list[tuple[str, bytes]]:
    """Read the files of a folder of plugins on the host (`cni.host.plugin_configuration_folder`); none if there is no such folder.

    Raises:
        OSError: the folder, or one of its files, cannot be read.
    """
    try:
        fd = open_below(root, folder, os.O_RDONLY | os.O_DIRECTORY)
    except (FileNotFoundError, NotADirectoryError):
        return []
    try:
        with os.scandir(fd) as entries:
            names = [entry.name for entry in entries if not entry.is_dir(follow_symlinks=False)]
    finally:
        os.close(fd)
    return [
        (path, read_below(root, path))
        for path in (f"{folder}/{name}" for name in plugin_configuration_folder.in_order(names))
    ]


async def read(conf: NetConf, root: Path, command: str = "") -> Primary:
    """Read the primary configuration that a request names, without the plugins that the runtime runs after Railnet.

    Raises:
        CniError: code 7, it is missing, unreadable, broken, or names Railnet itself; code 11, its disk does not answer.
        OSError: the daemon has no descriptor for it.
    """
    path = conf.primary
    try:
        primary: Primary = await read_in_time(path, partial(load, root, path, conf.version))
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        if isinstance(error, OSError) and is_own_shortage(error):
            raise
        if isinstance(error, TimeoutError):  # the class of ETIMEDOUT
            raise CniError(TRY_AGAIN, f"the primary configuration {path} is {error.strerror}") from None
        raise chain.unreadable(path, error) from None
    look = command == ADD and appended_plugins.may_repeat(primary, conf.omit)
    return appended_plugins.run_once(primary, conf.omit, await _railnets_own(root, conf.conflist) if look else None)


async def _railnets_own(root: Path, path: str) -> bytes | None:
    """Read Railnet's configuration as it is on the host now; None if it cannot be read."""
    try:
        content: bytes = await read_in_time(path, partial(read_below, root, path))
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        if isinstance(error, OSError) and is_own_shortage(error):
            raise
        return None
    return content


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

    Plugins that the runtime runs by now are left out.

    Raises:
        CniError: as `read`.
    """
    if record.rebuilt:
        return await read(conf, root), conf.runtime_config
    recorded = record.primary["conf"]
    primary = Primary(recorded["name"], recorded["cniVersion"], recorded["plugins"], recorded["disableCheck"])
    return chain.without(primary, conf.omit), record.primary["runtimeConfig"]
