"""Reclaim what dead containers left of the primary network: by the primary's own DEL, then what the DEL leaves.

`cni.primary_gc.liveness` decides which containers are dead, and `railnet.daemon.primary_gc_schedule` when to look.
"""

import asyncio
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from math import inf
from pathlib import Path
from typing import NamedTuple

from cni.cancellation_shield import until_stopped
from cni.host import chain, lock
from cni.host.chain import Primary
from cni.host.errors import TRY_AGAIN, CniError
from cni.host_delegates import HostDelegates
from cni.primary_gc import state_files
from cni.primary_gc.liveness import DeadContainer, LivenessFacts, dead_containers
from cni.primary_gc.state_files import StateFile
from cni.rail_observers import TookBack, count_nothing
from railnet.errors import NotReady
from railnet.kernel import foreign_state_files
from railnet.kernel.boot import boot_time
from railnet.kernel.files import open_below
from railnet.kernel.namespaces import netns_search
from railnet.kernel.netlink import veth_deletion
from railnet.kubelet import cri
from railnet.vf.record import Record, SandboxPod

_log = logging.getLogger(__name__)
_CRI_SECONDS = 2.0
_AT_ONCE = 4  # plugins of dead containers; host-local runs one at a time anyway
_IFNAME = "eth0"  # containerd's and CRI-O's name for it, if no state file has one
# If it is not known whether a container had port mappings. Without any, portmap does nothing; with some it deletes the chains that
# are named after the container, whatever the mappings are (plugins/meta/portmap/portmap.go, unforwardPorts).
_ANY_MAPPING = {"portMappings": [{"hostPort": 1, "containerPort": 1, "protocol": "tcp"}]}
_LOCK = "lock"  # in host-local's folder, plugins/ipam/host-local/backend/disk/lock.go


class PrimaryGc:
    """Reclaims on this node. Runs on the event loop; blocking work goes to threads."""

    def __init__(  # noqa: PLR0913 - composed once
        self,
        *,
        root: Path,
        cri_socket: Path,
        cni_path: str,
        add_seconds: float,
        delegates: HostDelegates,
        records: Callable[[], Iterable[Record]],
        took_back: TookBack = count_nothing,
    ) -> None:
        """Compose the collector.

        Args:
            root: where the host's mount namespace is seen.
            cri_socket: the runtime's socket, on the host.
            cni_path: CNI_PATH, on the host.
            add_seconds: within which an ADD and its undo have ended.
            delegates: runs the primary's plugins.
            records: the journal's; rails of these containers are taken back first.
            took_back: counts each file that is removed.
        """
        self._root = root
        self._cri_socket = cri_socket
        self._cni_path = cni_path
        self._add_seconds = add_seconds
        self._delegates = delegates
        self._records = records
        self._took_back = took_back
        self._one_at_a_time = asyncio.Lock()
        self._counting = threading.Lock()
        self._unlisted = ""  # why the runtime's list was not known the last time, which is logged once

    async def sweep(self, primary: Primary) -> None:
        """Reclaim what containers left that the runtime does not list; what fails is tried again by the next sweep."""
        async with self._one_at_a_time:
            files = await asyncio.to_thread(self._read, primary)
            listed = await self._listed() if files else frozenset()
            await self._reclaim_dead(primary, files, listed)

    async def collect(self, primary: Primary, valid: frozenset[str], seconds: float) -> list[str]:
        """Reclaim what containers left that have none of the `valid` attachments; return the failures, in words.

        After `seconds` no container is begun any more. The failures have the number of those that are left, and `sweep` goes
        on with them.
        """
        give_up = asyncio.get_running_loop().time() + seconds
        try:
            async with asyncio.timeout_at(give_up):
                await self._one_at_a_time.acquire()
        except TimeoutError:
            return ["leftovers of the primary network are being taken back already, and that takes longer"]
        try:
            files = await asyncio.to_thread(self._read, primary)
            listed = frozenset(key.partition("@")[0] for key in valid)
            return await self._reclaim_dead(primary, files, listed, give_up)
        finally:
            self._one_at_a_time.release()

    def _read(self, primary: Primary) -> list[StateFile]:
        try:
            return [
                file
                for folder in state_files.state_folders(primary)
                for entry in foreign_state_files.entries(self._root, folder.path)
                if (file := state_files.parse(folder, entry, primary.name)) is not None
            ]
        except OSError as error:
            _log.error("the state files of network %s cannot be read: %s", primary.name, error)
            return []

    async def _listed(self) -> frozenset[str] | None:
        """Ask the runtime for its sandboxes; return None if it does not answer."""
        why, sandboxes = "", None
        try:
            # Links in the host's path must be followed in the host's root, so the socket is opened there and named by its descriptor.
            fd = open_below(self._root, str(self._cri_socket), os.O_PATH)
            try:
                sandboxes = await cri.sandboxes(Path(f"/proc/self/fd/{fd}"), _CRI_SECONDS)
            finally:
                os.close(fd)
        except (OSError, NotReady) as error:
            why = str(error)
        if why and not self._unlisted:
            _log.warning(
                "host.cri %s: %s; until it answers, only what is older than this machine's start is taken back of "
                "what dead pods left of the primary network",
                self._cri_socket,
                why,
            )
        self._unlisted = why
        return sandboxes

    async def _reclaim_dead(
        self, primary: Primary, files: list[StateFile], listed: frozenset[str] | None, give_up: float = inf
    ) -> list[str]:
        facts = LivenessFacts(
            time.time(),
            boot_time(),
            self._add_seconds,
            # A primary that is shared with another runtime has containers that this runtime does not list.
            None if primary.disable_gc else listed,
            frozenset(record.container_id for record in self._records()),
        )
        failures = []
        try:
            containers = await asyncio.to_thread(self._without_namespace, files, facts)
        except OSError as error:
            failures.append(f"it is not known which containers are alive: {error}")
            containers = ()
        waiting, left = list(reversed(containers)), 0

        async def reclaim_next() -> None:
            nonlocal left
            while waiting:
                dead = waiting.pop()
                if asyncio.get_running_loop().time() >= give_up:
                    left += 1
                    continue
                try:
                    await until_stopped(partial(self._reclaim, primary, dead))
                except (
                    OSError,
                    CniError,
                    ValueError,
                ) as error:  # ValueError: a value of libcni's file fits no environment
                    failures.append(f"container {dead.container_id}: {error}")

        await asyncio.gather(*(reclaim_next() for _ in range(_AT_ONCE)))
        if left:
            failures.append(f"the time was over before what {left} more containers left was taken back; that goes on")
        for failure in failures:
            _log.error("network %s: %s; it is tried again", primary.name, failure)
        return failures

    def _without_namespace(self, files: list[StateFile], facts: LivenessFacts) -> tuple[DeadContainer, ...]:
        """Find dead containers; the namespaces are searched only if some container seems dead."""
        suspects = dead_containers(files, facts)
        if not suspects:
            return ()
        cached = [file.cached for suspect in suspects for file in suspect.files if file.cached]
        paths = (path for add in cached for path in add.sandboxes)
        bound = frozenset(path for path in paths if netns_search.is_bound(self._root, path))
        return dead_containers(files, replace(facts, held=netns_search.addresses(self._root), bound=bound))

    def _reclaim(self, primary: Primary, dead: DeadContainer, stopped: threading.Event) -> None:
        """Reclaim all that is left of a dead container, unless a request works on it.

        Raises:
            CniError: the primary's DEL failed; what it has not reclaimed stays as it is. OSError: a file or link stays.
        """
        ifnames = sorted({file.ifname for file in dead.files} - {""}) or [_IFNAME]
        with ExitStack() as locks:
            held: tuple[int, ...] = ()
            for ifname in ifnames if dead.container_id is not None else ():
                locked = _locked(self._delegates.lock_of(f"{dead.container_id}@{ifname}"), locks)
                if locked is None:
                    return
                held = (*held, *locked)
            names = ", ".join(sorted(file.entry.name for file in dead.files))
            container = dead.container_id or "without an id"
            _log.warning(
                "network %s: taking back what container %s left (%s): %s", primary.name, container, names, dead.why
            )
            for file in dead.files:
                if not file.readable:  # it would make flannel's DEL fail or do nothing
                    self._remove(file)
            for ifname in ifnames if dead.container_id is not None else ():
                self._delete(primary, dead, ifname, held, stopped)
            for file in dead.files:
                self._remove(file)
                with self._counting:
                    self._took_back(file.folder.kind)

    def _delete(
        self, primary: Primary, dead: DeadContainer, ifname: str, held: tuple[int, ...], stopped: threading.Event
    ) -> None:
        """Run the primary's DEL as the runtime would run it, with libcni's cached result."""
        cached = next((file.cached for file in dead.files if file.cached and file.ifname == ifname), None)
        attachment = _Attachment(dead.container_id or "", ifname, cached.pod if cached else SandboxPod("", "", ""))
        steps = chain.delete(
            primary, cached.runtime_config if cached else _ANY_MAPPING, cached.result if cached else None
        )
        try:
            self._delegates.run(steps, attachment, self._cni_path, held, stopped)
        except CniError as error:
            if not dead.before_boot or error.code == TRY_AGAIN:
                raise
            # Of a container of an older boot only files are left, and those are removed.
            _log.warning("network %s: DEL of container %s failed: %s", primary.name, dead.container_id, error)

    def _remove(self, file: StateFile) -> None:
        """Remove what the DEL has left; a file that has changed since it was read is left to the next sweep."""
        for name, address in file.cached.host_links if file.cached else ():
            veth_deletion.delete(name, address)
        owners_lock = _LOCK if file.folder.kind == "host-local" else None
        foreign_state_files.remove(self._root, file.folder.path, file.entry, owners_lock)


class _Attachment(NamedTuple):
    container_id: str
    ifname: str
    pod: SandboxPod


def _locked(path: str, locks: ExitStack) -> tuple[int, ...] | None:
    """Lock an attachment until `locks` is closed; return None if a request works on it, or a process that it left does.

    () if the lock's file cannot be made: what a dead container left is taken back all the same.
    """
    try:
        held = lock.acquire_if_possible(path)
    except CniError:
        return None
    for fd in held:
        locks.callback(lock.remove, path, fd)
    return held
