"""Remove Railnet from a host: at once from the runtime's configuration, and from the disk when no pod needs it.

These need the executable and the daemon: a pod with a rail, because its VF must come back under its own name, and a request that runs.
A pod without a rail needs neither. The configuration that the runtime remembers of such a pod is given back to the
primary network (`runtime_cached_configurations`), so that its DEL executes the primary's plugins alone.
"""

import asyncio
import logging
import shutil
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

from cni.host import lock
from railnet.configuration import HostConfiguration
from railnet.daemon.conflist.conflist import ConflistFolder
from railnet.dra import prepared_claim_files
from railnet.install import conflist_removal, former_folders, installer, running_plugins, runtime_cached_configurations
from railnet.install.executable_location import ExecutableLocation
from railnet.install.runtime_cached_configurations import Remembered
from railnet.kernel.files import below
from railnet.kubelet.dra_manager_state import PreparedDevices
from railnet.vf import rail_memory
from railnet.vf.record import SandboxPod, UnreadableRecord, decode

_log = logging.getLogger(__name__)
_LOOK_SECONDS = 1.0
_END_SECONDS = 30.0
_NAMED = 20  # a node has about as many VFs

ReadClaims = Callable[[], Awaitable[Iterable[PreparedDevices]]]
"""Returns the claims of Railnet's driver in kubelet's file. Raises ValueError, OSError: they are not known."""


async def _no_claims() -> Iterable[PreparedDevices]:
    return ()


class Leaving:
    """The removal from one host; `serve` waits for its pods with rails, since the daemon still serves their DELs."""

    leaves = True
    why_inactive: str | None = "Railnet is being taken away from this node"
    """Why kubelet must give no VF to a new pod."""

    trouble: str | None = None
    """Why Railnet's executable is still on the host; None if it is removed."""

    rewrites: str | None = None
    """Nothing is kept in place any more."""

    def __init__(self, host: HostConfiguration, claims: ReadClaims = _no_claims) -> None:
        """Remove Railnet from the host seen at `host.root`: from the configured CNI folders, and from those that were configured before."""
        self._root, self._read_claims = host.root, claims
        self._claims: dict[str, str] | None = None  # kubelet's, by UID
        self._folders = [ConflistFolder.of(host), *former_folders.conflist_folders(host)]
        self._locations = [ExecutableLocation.of(host), *former_folders.executable_locations(host)]
        self.done = False

    def deactivate(self) -> None:
        """Give the runtime back to the primary network; running pods keep what they have.

        Raises:
            OSError: the folder cannot be written.
        """
        for folder in self._folders:
            conflist_removal.remove(folder)

    async def serve(self, changed: Callable[[], None]) -> None:  # noqa: ARG002 - `why_inactive` does not change
        """Return when nothing of Railnet is left in the runtime's folders."""
        while True:
            # A request that began before the runtime noticed the removal ends, or is found, within the pause.
            await asyncio.sleep(_LOOK_SECONDS)
            for folder in self._folders:  # a program may have copied what it read before the removal
                await asyncio.to_thread(conflist_removal.take_out_of_copies, folder)
            needed = await asyncio.to_thread(needed_by, self._root)
            needed += [claim for claim in await self._unended_claims() if claim not in needed]
            if not needed:
                break
            self._say(needed)
        await asyncio.to_thread(self._remove)
        self.done = True

    def forget(self) -> None:
        """Remove the daemon's files in /run, and the memory of rails; only after the daemon has ended."""
        shutil.rmtree(below(self._root, lock.RUN), ignore_errors=True)
        shutil.rmtree(below(self._root, rail_memory.FILE).parent, ignore_errors=True)

    async def _unended_claims(self) -> list[str]:
        """Name the claims of kubelet's file that were there at the first look, and still are: for these the driver is registered.

        After a reboot they have no record. A file that cannot be read says nothing new.
        """
        try:
            named = {claim.claim_uid: f"{claim} is prepared" for claim in await self._read_claims()}
        except (OSError, ValueError) as error:
            _log.warning("it is not known which claims kubelet has: %s", error)
        else:
            before = named if self._claims is None else self._claims
            self._claims = {uid: claim for uid, claim in named.items() if uid in before}
        return list((self._claims or {}).values())

    def _say(self, needed: list[str]) -> None:
        named = ", ".join(needed[:_NAMED]) + (", …" if len(needed) > _NAMED else "")
        trouble = f"{self._locations[0].executable} stays: {len(needed)} still need it ({named})"
        if trouble != self.trouble:
            _log.info("%s", trouble)
        self.trouble = trouble

    def _remove(self) -> None:
        for location in self._locations:
            if location.reached().is_dir():
                self._remove_from(location)
        # The runtime may have written down an ADD that ended after the last look. No ADD can follow it.
        for why in _give_back(self._root, runtime_cached_configurations.find(self._root)):
            _log.warning(
                "%s; CRI-O cannot take this pod down: install Railnet again, and uninstall it when the pod has ended",
                why,
            )
        _log.info("%s is removed: no pod needs it", self._locations[0].executable)

    def _remove_from(self, location: ExecutableLocation) -> None:
        with installer.locked(location):
            location.reached_executable().unlink(missing_ok=True)
            running_plugins.await_end(self._root, _END_SECONDS)
            shutil.rmtree(location.reached_bundles())


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
        *_prepared_claims(root),
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


def _prepared_claims(root: Path) -> list[str]:
    """Name the claims that kubelet has to have unprepared: it can end their pods only while the driver serves."""
    return [f"{name} is prepared" for name in prepared_claim_files.recorded(below(root, f"{lock.RUN}/claims"))]


def _pod_name(pod: SandboxPod, key: str) -> str:
    return f"pod {pod.namespace}/{pod.name}" if pod.name else f"sandbox {key}"
