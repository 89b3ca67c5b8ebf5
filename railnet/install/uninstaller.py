"""Take Railnet away from a host: at once from the runtime's configuration, from the disk once no sandbox needs it any more.

A runtime may take a sandbox down with the configuration it was made with (CRI-O does), so the executable has to stay for
as long as one of those lives. Which do, the runtime's own cache tells: libcni keeps the configuration of every ADD.
"""

import asyncio
import base64
import json
import logging
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from cni.host import lock
from cni.host.chain import OURSELVES
from kernel.files import below, open_below, sync
from railnet.daemon import conflist_content
from railnet.install import host_python, installer, running_plugins

_log = logging.getLogger(__name__)
# libcni's CacheDir (containerd, CRI-O), and what dockershim and cri-dockerd set (containernetworking/cni, libcni/api.go).
_CACHES = ("/var/lib/cni/results", "/var/lib/cni/cache/results")
_LOOK_SECONDS = 1.0
_END_SECONDS = 30.0
_NAMED = 3


class Leaving:
    """One host that Railnet leaves; `serve` waits for its sandboxes while the daemon still takes them down."""

    why_inactive: str | None = "Railnet is being taken away from this node"
    """Why no VF may be used any more."""

    trouble: str | None = None
    """What keeps Railnet's executable on the host."""

    def __init__(self, root: Path) -> None:
        """Leave the host seen at `root`."""
        self._root = root
        self.done = False

    def deactivate(self) -> None:
        """Give the runtime back to the primary network; running pods keep what they have.

        Copies that another tool has made go, too: Cilium would put its `….cilium_bak` back some day.

        Raises:
            OSError: the folder cannot be written.
        """
        for path in conflist_content.copies(self._root):
            path.unlink()
            sync(path.parent)
            _log.info("%s/%s is removed", conflist_content.FOLDER, path.name)

    async def serve(self, changed: Callable[[], None]) -> None:  # noqa: ARG002 - `why_inactive` does not change
        """Return when nothing of Railnet is left in the runtime's folders."""
        while True:
            # A request that began before the runtime saw our configuration go ends, or is seen, within the pause.
            await asyncio.sleep(_LOOK_SECONDS)
            needed_by = await asyncio.to_thread(self._needed_by)
            if not needed_by:
                break
            self._say(needed_by)
        await asyncio.to_thread(self._remove)
        self.done = True

    def forget(self) -> None:
        """Remove what the daemon kept in /run; only after it has ended."""
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
            shutil.rmtree(below(self._root, host_python.FOLDER))
        _log.info("%s is removed: no sandbox needs it", installer.EXECUTABLE)


def sandboxes(root: Path) -> list[str]:
    """Name the living sandboxes that a runtime may still take down through Railnet: by its cache, and by our journal."""
    cached = {name for folder in _CACHES for name in _cached(root, below(root, folder))}
    recorded = {path.stem for path in below(root, f"{lock.RUN}/journal").glob("[!.]*.json")}
    return sorted(cached | {f"sandbox {name}" for name in recorded})


def _cached(root: Path, folder: Path) -> Iterator[str]:
    for path in sorted(folder.glob("*")):
        try:
            entry = json.loads(path.read_bytes())
            if _is_ours(entry) and _lives(root, entry):
                yield f"sandbox {entry['containerId']}@{entry['ifName']}"
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            continue  # no entry of libcni's, or gone by now


def _is_ours(entry: dict[str, Any]) -> bool:
    """Return whether an ADD was made with a configuration of ours (containernetworking/cni, libcni/api.go, cachedInfo)."""
    configuration = json.loads(base64.b64decode(entry["config"]))
    return any(plugin["type"] == OURSELVES for plugin in configuration.get("plugins", [configuration]))


def _lives(root: Path, entry: dict[str, Any]) -> bool:
    """Return whether the sandbox's namespace is still there; a sandbox of before a reboot is not. Unknown means yes."""
    paths = {interface.get("sandbox") for interface in entry["result"].get("interfaces", [])} - {None, ""}
    return not paths or any(_exists(root, path) for path in paths)


def _exists(root: Path, path: str) -> bool:
    try:
        os.close(open_below(root, path, os.O_PATH))
    except FileNotFoundError:
        return False
    return True
