"""Remove Railnet from a host: at once from the runtime's configuration, and from the disk when no pod needs it.

These need the executable and the daemon: a pod with a rail, because its VF must come back under its own name, and a request that runs.
A pod without a rail needs neither. The configuration that the runtime remembers of such a pod is given back to the
primary network (`runtime_cached_configurations`), so that its DEL executes the primary's plugins alone.
"""

import asyncio
import logging
import shutil
import stat
from collections.abc import Callable, Iterable
from pathlib import Path

from cni.host import lock
from cni.host.errors import CniError
from railnet.daemon import conflist, foreign_plugins
from railnet.install import (
    conflists_without_railnet,
    installer,
    python_bundle,
    running_plugins,
    runtime_cached_configurations,
)
from railnet.install.executable_location import EXECUTABLE
from railnet.install.runtime_cached_configurations import Remembered
from railnet.kernel.files import below, read_below, sync, write_atomically
from railnet.vf import rail_memory
from railnet.vf.record import SandboxPod, UnreadableRecord, decode

_log = logging.getLogger(__name__)
_LOOK_SECONDS = 1.0
_END_SECONDS = 30.0
_NAMED = 20  # a node has about as many VFs


class Leaving:
    """The removal from one host; `serve` waits for its pods with rails, since the daemon still serves their DELs."""

    leaves = True
    why_inactive: str | None = "Railnet is being taken away from this node"
    """Why kubelet must give no VF to a new pod."""

    trouble: str | None = None
    """Why Railnet's executable is still on the host; None if it is removed."""

    rewrites: str | None = None
    """Nothing is kept in place any more."""

    def __init__(self, root: Path) -> None:
        """Remove Railnet from the host seen at `root`."""
        self._root = root
        self.done = False

    def deactivate(self) -> None:
        """Give the runtime back to the primary network; running pods keep what they have.

        Copies that another tool has made go, too: Cilium would put its `….cilium_bak` back some day.

        Plugins that other programs appended to Railnet's configuration go to the primary's, and come before its removal: no pod
        is made without them.

        Raises:
            OSError: the folder cannot be written.
        """
        _complete_primary(self._root)
        for path in conflist.copies(self._root):
            path.unlink()
            sync(path.parent)
            _log.info("%s/%s is removed", conflist.FOLDER, path.name)
        _take_out_of_copies(self._root)

    async def serve(self, changed: Callable[[], None]) -> None:  # noqa: ARG002 - `why_inactive` does not change
        """Return when nothing of Railnet is left in the runtime's folders."""
        while True:
            # A request that began before the runtime noticed the removal ends, or is found, within the pause.
            await asyncio.sleep(_LOOK_SECONDS)
            await asyncio.to_thread(
                _take_out_of_copies, self._root
            )  # a program may have copied what it read before the removal
            needed = await asyncio.to_thread(needed_by, self._root)
            if not needed:
                break
            self._say(needed)
        await asyncio.to_thread(self._remove)
        self.done = True

    def forget(self) -> None:
        """Remove the daemon's files in /run, and the memory of rails; only after the daemon has ended."""
        shutil.rmtree(below(self._root, lock.RUN), ignore_errors=True)
        shutil.rmtree(below(self._root, rail_memory.FILE).parent, ignore_errors=True)

    def _say(self, needed: list[str]) -> None:
        named = ", ".join(needed[:_NAMED]) + (", …" if len(needed) > _NAMED else "")
        trouble = f"{EXECUTABLE} stays: {len(needed)} still need it ({named})"
        if trouble != self.trouble:
            _log.info("%s", trouble)
        self.trouble = trouble

    def _remove(self) -> None:
        with installer.locked(self._root):
            below(self._root, EXECUTABLE).unlink(missing_ok=True)
            running_plugins.await_end(self._root, _END_SECONDS)
            shutil.rmtree(below(self._root, python_bundle.FOLDER))
        # The runtime may have written down an ADD that ended after the last look. No ADD can follow it.
        for why in _give_back(self._root, runtime_cached_configurations.find(self._root)):
            _log.warning(
                "%s; CRI-O cannot take this pod down: install Railnet again, and uninstall it when the pod has ended",
                why,
            )
        _log.info("%s is removed: no pod needs it", EXECUTABLE)


def _complete_primary(root: Path) -> None:
    """Have the plugins that Railnet's conflist alone has run without Railnet. A mesh's copy of the conflist has them, too.

    What fails is logged: a node must be able to lose Railnet.
    """
    primary = conflist.named_primary(root)
    foreign = foreign_plugins.parse(conflist.read(root) or b"")
    if primary is None or foreign is None or conflist.files_beside_railnet(root):
        return
    try:
        content = conflists_without_railnet.primary_alone(read_below(root, primary), primary, foreign)
        if content is not None:
            _replace(root, primary, content)
    except (OSError, ValueError, CniError) as error:
        _log.warning(
            "plugins that other programs appended to Railnet's configuration (%s) are not in the primary's: %s; start their installers again",
            ", ".join(plugin["type"] for plugin in foreign.plugins) or "none",
            error,
        )


def _take_out_of_copies(root: Path) -> None:
    """Have the primary's plugins in the place of Railnet's in files of other programs that copy Railnet's conflist."""
    for name, copy in conflist.files_beside_railnet(root):
        path = f"{conflist.FOLDER}/{name}"
        try:
            primary = str(conflists_without_railnet.own_plugin(copy).get("primary"))
            _replace(root, path, conflists_without_railnet.without_railnet(copy, read_below(root, primary), primary))
        except (OSError, ValueError, CniError) as error:
            _log.warning(
                "%s calls Railnet, which leaves this node: %s; remove the file, and start its program again",
                path,
                error,
            )


def _replace(root: Path, path: str, content: bytes) -> None:
    file = below(root, path)
    write_atomically(file, content, stat.S_IMODE(file.stat().st_mode), durable=True)
    _log.info("%s runs the plugins that other programs had appended to Railnet's configuration", path)


def needed_by(root: Path) -> list[str]:
    """Give back what the runtime remembers of pods without a rail. Name what needs the executable all the same, with the reason."""
    # In this order: a request that ends has left its record by then, and the runtime's own file follows.
    running = sorted(running_plugins.requests(root))
    requests = [running_plugins.describe(root, process) for process in running]
    remembered = runtime_cached_configurations.find(root)
    records = _records(root)
    with_rail = sorted(f"{name} has a rail" for name in records.values())
    return [
        *with_rail,
        *requests,
        *_give_back(root, (sandbox_file for sandbox_file in remembered if sandbox_file.add.key not in records)),
    ]


def _give_back(root: Path, remembered: Iterable[Remembered]) -> list[str]:
    """Give back what the runtime remembers of pods without a rail; return why it failed, for each pod."""
    failures = []
    for sandbox_file in remembered:
        name = _pod_name(sandbox_file.add.pod, sandbox_file.add.key)
        try:
            runtime_cached_configurations.give_back(root, sandbox_file)
            _log.info("%s: its DEL is the primary network's from now on", name)
        except (OSError, ValueError) as error:
            failures.append(
                f"{name}: its DEL cannot be made the primary network's: {error}; correct this, or end the pod"
            )
    return failures


def _records(root: Path) -> dict[str, str]:
    """Name the pods of the journal's records, by the record's key."""
    names = {}
    for path in sorted(below(root, f"{lock.RUN}/journal").glob("[!.]*.json")):
        try:
            names[path.stem] = _pod_name(decode(path.read_bytes()).pod, path.stem)
        except FileNotFoundError:
            continue  # its DEL has ended meanwhile
        except (OSError, UnreadableRecord):
            names[path.stem] = f"sandbox {path.stem}"
    return names


def _pod_name(pod: SandboxPod, key: str) -> str:
    return f"pod {pod.namespace}/{pod.name}" if pod.name else f"sandbox {key}"
