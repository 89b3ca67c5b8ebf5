"""The configurations that the container runtime remembers of its sandboxes: find those that are Railnet's, and give them back.

libcni keeps the configuration of each ADD. CRI-O runs DEL with it, so a DEL of a sandbox that was made through Railnet executes
Railnet. For a pod without a rail, Railnet's DEL is the primary network's DEL with the configuration that is on the host at that
time. So the remembered configuration can be that one: the same DEL then needs no executable of Railnet.
"""

import base64
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from cni import libcni_cache, primary_configuration
from cni.host.chain import OURSELVES
from cni.host.errors import CniError
from cni.libcni_cache import CachedAdd
from railnet.daemon.conflist import foreign_plugins
from railnet.daemon.conflist.foreign_plugins import ForeignPlugins
from railnet.install import conflists_without_railnet
from railnet.kernel.files import below, open_below, read_below, write_atomically


class Remembered(NamedTuple):
    """The file of one living sandbox with a remembered configuration that is Railnet's."""

    path: Path
    content: bytes
    add: CachedAdd


def find(root: Path) -> tuple[Remembered, ...]:
    """Find the living sandboxes of the host at `root` that the runtime may DEL through Railnet.

    A sandbox of before a reboot does not live: its namespace is gone, and the cache survives.
    """
    return tuple(remembered for folder in libcni_cache.FOLDERS for remembered in _in(root, below(root, folder)))


def give_back(root: Path, remembered: Remembered) -> None:
    """Replace a remembered configuration by the primary network's, which it names.

    Raises:
        OSError: the primary's configuration cannot be read, or the runtime's file cannot be written.
        ValueError: the primary's configuration is broken, or is that of another network.
    """
    path = _primary_of(remembered.add)
    primary = read_below(root, path)
    try:
        name = primary_configuration.load(root, path).name
        foreign = foreign_plugins.parse(base64.b64decode(remembered.add.config)) or ForeignPlugins()
        alone = conflists_without_railnet.primary_alone(primary, path, foreign._replace(copies={})) or primary
    except CniError as error:
        raise ValueError(str(error)) from None
    if name != remembered.add.network:  # libcni would look for the sandbox's file under the other name
        raise ValueError(f"{path} is network {name!r:.80}, and the pod is in network {remembered.add.network!r:.80}")
    if remembered.path.exists():  # a DEL has not ended meanwhile
        write_atomically(remembered.path, libcni_cache.with_configuration(remembered.content, alone))


def _primary_of(add: CachedAdd) -> str:
    path = conflists_without_railnet.own_plugin(base64.b64decode(add.config)).get("primary")
    if not isinstance(path, str):
        raise ValueError(f"the remembered configuration has 'primary': {path!r:.80}, which is no path")  # noqa: TRY004 - of a file
    return path


def _in(root: Path, folder: Path) -> Iterator[Remembered]:
    for path in sorted(folder.glob("*")):
        try:
            content = path.read_bytes()
            add = libcni_cache.parse(content)
            if OURSELVES in add.plugins and _lives(root, add):
                yield Remembered(path, content, add)
        except (OSError, ValueError):
            continue  # no entry of libcni's, or gone by now


def _lives(root: Path, add: CachedAdd) -> bool:
    """Return whether the sandbox's namespace exists; a namespace from before a reboot does not. Unknown counts as yes."""
    return not add.sandboxes or any(_exists(root, path) for path in add.sandboxes)


def _exists(root: Path, path: str) -> bool:
    try:
        os.close(open_below(root, path, os.O_PATH))
    except FileNotFoundError:
        return False
    return True
