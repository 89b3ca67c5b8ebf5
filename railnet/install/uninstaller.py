"""Remove Railnet from a host: at once from the runtime's configuration, and from the disk when no sandbox needs it.

A runtime may take a sandbox down with the configuration it was made with (CRI-O does), so the executable has to stay for
as long as one of those lives. Which do, the runtime's own cache tells: libcni keeps the configuration of every ADD.
"""

import asyncio
import logging
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from cni import libcni_cache
from cni.host import lock
from cni.host.chain import OURSELVES
from cni.libcni_cache import CachedAdd
from kernel.files import below, open_below, sync
from railnet.daemon import conflist
from railnet.install import installer, python_bundle, running_plugins

_log = logging.getLogger(__name__)
_LOOK_SECONDS = 1.0
_END_SECONDS = 30.0
_NAMED = 3


class Leaving:
    """The removal from one host; `serve` waits for its sandboxes, whose DELs the daemon still serves."""

    why_inactive: str | None = "Railnet is being taken away from this node"
    """Why kubelet must give no VF to a new pod."""

    trouble: str | None = None
    """Why Railnet's executable is still on the host; None if it is removed."""

    def __init__(self, root: Path) -> None:
        """Remove Railnet from the host seen at `root`."""
        self._root = root
        self.done = False

    def deactivate(self) -> None:
        """Give the runtime back to the primary network; running pods keep what they have.

        Copies that another tool has made go, too: Cilium would put its `….cilium_bak` back some day.

        Raises:
            OSError: the folder cannot be written.
        """
        for path in conflist.copies(self._root):
            path.unlink()
            sync(path.parent)
            _log.info("%s/%s is removed", conflist.FOLDER, path.name)

    async def serve(self, changed: Callable[[], None]) -> None:  # noqa: ARG002 - `why_inactive` does not change
        """Return when nothing of Railnet is left in the runtime's folders."""
        while True:
            # A request that began before the runtime noticed the removal ends, or is found, within the pause.
            await asyncio.sleep(_LOOK_SECONDS)
            needed_by = await asyncio.to_thread(self._needed_by)
            if not needed_by:
                break
            self._say(needed_by)
        await asyncio.to_thread(self._remove)
        self.done = True

    def forget(self) -> None:
        """Remove the daemon's files in /run; only after the daemon has ended."""
        shutil.rmtree(below(self._root, lock.RUN), ignore_errors=True)

    def _needed_by(self) -> list[str]:
        running = [f"request of process {process}" for process in sorted(running_plugins.requests(self._root))]
        return [*sandboxes(self._root), *running]

    def _say(self, needed_by: list[str]) -> None:
        named = ", ".join(needed_by[:_NAMED]) + (", …" if len(needed_by) > _NAMED else "")
        trouble = f"{installer.EXECUTABLE} stays: {len(needed_by)} still need it ({named})"
        if trouble != self.trouble:
            _log.info("%s", trouble)
        self.trouble = trouble

    def _remove(self) -> None:
        with installer.locked(self._root):
            below(self._root, installer.EXECUTABLE).unlink(missing_ok=True)
            running_plugins.await_end(self._root, running_plugins.requests(self._root), _END_SECONDS)
            shutil.rmtree(below(self._root, python_bundle.FOLDER))
        _log.info("%s is removed: no sandbox needs it", installer.EXECUTABLE)


def sandboxes(root: Path) -> list[str]:
    """Name the living sandboxes that the runtime may still DEL through Railnet, by libcni's cache and by the journal."""
    cached = {name for folder in libcni_cache.FOLDERS for name in _cached(root, below(root, folder))}
    recorded = {path.stem for path in below(root, f"{lock.RUN}/journal").glob("[!.]*.json")}
    return sorted(cached | {f"sandbox {name}" for name in recorded})


def _cached(root: Path, folder: Path) -> Iterator[str]:
    for path in sorted(folder.glob("*")):
        try:
            add = libcni_cache.parse(path.read_bytes())
            if OURSELVES in add.plugins and _lives(root, add):
                yield f"sandbox {add.container_id}@{add.ifname}"
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
