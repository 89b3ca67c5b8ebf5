"""Take back what dead containers left of the primary network: by the primary's own DEL, then what that leaves."""

import asyncio
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from cni import host_delegates
from cni.cancellation import until_stopped
from cni.events import TookBack, count_nothing
from cni.host import chain, lock
from cni.host.chain import Primary
from cni.host.errors import TRY_AGAIN, CniError
from cni.primary_gc.liveness import DeadContainer, Facts, dead
from cni.primary_gc.state_files import Trace, books, read
from kernel import host_folder, netns_search
from kernel.boot import boot_time
from kernel.files import open_below
from kernel.host_process import Terms
from kernel.netlink import veth
from kubelet import cri
from vf.errors import NotReady
from vf.record import Pod, Record

_log = logging.getLogger(__name__)
_CRI_SECONDS = 2.0
_IFNAME = "eth0"  # what containerd and CRI-O call it, where no book says
# Where nobody knows whether a container had port mappings. portmap does nothing without any, and else deletes the chains that are
# named after the container, whatever the mappings are (plugins/meta/portmap/portmap.go, unforwardPorts).
_ANY_MAPPING = {"portMappings": [{"hostPort": 1, "containerPort": 1, "protocol": "tcp"}]}
_LOCK = "lock"  # in host-local's folder, plugins/ipam/host-local/backend/disk/lock.go


@dataclass(frozen=True, slots=True)
class Host:
    """Where the host's mount namespace is seen; there, the runtime's socket `cri` and CNI_PATH; how long what may take.

    An ADD and its undo end within `add_seconds`; `locks` is the folder of the executables' locks.
    """

    root: Path
    cri: Path
    path: str
    delegate_seconds: float
    add_seconds: float
    locks: Path = Path(lock.FOLDER)


class PrimaryGc:
    """The primary's leftovers on this node. Runs on the event loop; what blocks goes to threads.

    `records` gives what the journal has: those containers' rails come first.
    """

    def __init__(
        self, host: Host, records: Callable[[], Iterable[Record]], took_back: TookBack = count_nothing
    ) -> None:
        self._took_back = took_back
        self._host = host
        self._records = records
        self._one_at_a_time = asyncio.Lock()
        self._unlisted = ""  # why the runtime's list was not known the last time, which is said once

    async def sweep(self, primary: Primary) -> None:
        """Take back what containers left that the runtime does not list; what fails is for the next sweep."""
        async with self._one_at_a_time:
            traces = await asyncio.to_thread(self._read, primary)
            listed = await self._listed() if traces else frozenset()
            await self._take_back(primary, traces, listed)

    async def collect(self, primary: Primary, valid: frozenset[str]) -> list[str]:
        """Take back what containers left that have none of the `valid` attachments; gives what failed, in words."""
        async with self._one_at_a_time:
            traces = await asyncio.to_thread(self._read, primary)
            return await self._take_back(primary, traces, frozenset(key.partition("@")[0] for key in valid))

    def _read(self, primary: Primary) -> list[Trace]:
        try:
            return [
                trace
                for book in books(primary)
                for entry in host_folder.entries(self._host.root, book.folder)
                if (trace := read(book, entry, primary.name)) is not None
            ]
        except OSError as error:
            _log.error("the books of network %s cannot be read: %s", primary.name, error)
            return []

    async def _listed(self) -> frozenset[str] | None:
        """Ask the runtime for its sandboxes; None where it does not say."""
        why, found = "", None
        try:
            # A path of the host's, whose links lead to where they lead there: the socket is named by a descriptor of it.
            fd = open_below(self._host.root, str(self._host.cri), os.O_PATH)
            try:
                found = await cri.sandboxes(Path(f"/proc/self/fd/{fd}"), _CRI_SECONDS)
            finally:
                os.close(fd)
        except (OSError, NotReady) as error:
            why = str(error)
        if why and not self._unlisted:
            _log.warning(
                "host.cri %s: %s; until it answers, only what is older than this machine's start is taken back of "
                "what dead pods left of the primary network",
                self._host.cri,
                why,
            )
        self._unlisted = why
        return found

    async def _take_back(self, primary: Primary, traces: list[Trace], listed: frozenset[str] | None) -> list[str]:
        # Who shares its network with another runtime must not have that one's containers judged by this one's list.
        facts = Facts(
            time.time(),
            boot_time(),
            self._host.add_seconds,
            None if primary.disable_gc else listed,
            frozenset(record.container_id for record in self._records()),
        )
        failures = []
        try:
            found = await asyncio.to_thread(self._without_namespace, traces, facts)
        except OSError as error:
            failures.append(f"who lives on this node cannot be told: {error}")
            found = ()
        for one in found:
            try:
                await until_stopped(partial(self._bury, primary, one))
            except (OSError, CniError, ValueError) as error:  # ValueError: libcni's file has what no environment can
                failures.append(f"container {one.container_id}: {error}")
        for failure in failures:
            _log.error("network %s: %s; it is tried again", primary.name, failure)
        return failures

    def _without_namespace(self, traces: list[Trace], facts: Facts) -> tuple[DeadContainer, ...]:
        """Judge; only where somebody seems dead are the namespaces looked at."""
        suspects = dead(traces, facts)
        if not suspects:
            return ()
        root = self._host.root
        cached = [trace.cached for one in suspects for trace in one.traces if trace.cached]
        bound = frozenset(path for one in cached for path in one.sandboxes if netns_search.is_bound(root, path))
        return dead(traces, replace(facts, held=netns_search.addresses(root), bound=bound))

    def _bury(self, primary: Primary, one: DeadContainer, stopped: threading.Event) -> None:
        """Take back all that there is of a dead container, unless a request is at it.

        Raises:
            CniError: the primary's DEL failed; what it has not taken back stays as it is. OSError: a file or link stays.
        """
        ifnames = sorted({trace.ifname for trace in one.traces} - {""}) or [_IFNAME]
        with ExitStack() as locks:
            held: tuple[int, ...] = ()
            for ifname in ifnames if one.container_id is not None else ():
                fd = _locked(str(self._host.locks / f"{one.container_id}@{ifname}"), locks)
                if fd is None:
                    return
                held = (*held, fd)
            terms = Terms(self._host.delegate_seconds, stopped, held)
            what = ", ".join(sorted(trace.entry.name for trace in one.traces))
            of = one.container_id or "somebody"
            _log.warning("network %s: taking back what container %s left (%s): %s", primary.name, of, what, one.why)
            for trace in one.traces:
                if not trace.sure:  # a broken state, which makes flannel's DEL fail or do nothing
                    self._remove(trace)
            for ifname in ifnames if one.container_id is not None else ():
                self._delete(primary, one, ifname, terms)
            for trace in one.traces:
                self._remove(trace)
                self._took_back(trace.book.kind)

    def _delete(self, primary: Primary, one: DeadContainer, ifname: str, terms: Terms) -> None:
        """Run the primary's DEL, as the runtime would with what libcni remembers."""
        cached = next((trace.cached for trace in one.traces if trace.cached and trace.ifname == ifname), None)
        of = _Attachment(one.container_id or "", ifname, cached.pod if cached else Pod("", "", ""))
        steps = chain.delete(
            primary, cached.runtime_config if cached else _ANY_MAPPING, cached.result if cached else None
        )
        try:
            host_delegates.drive(steps, of, self._host.path, self._host.root, terms)
        except CniError as error:
            if not one.before_boot or error.code == TRY_AGAIN:
                raise
            # Of what is older than the boot there are files alone, and those are removed.
            _log.warning("network %s: DEL of container %s failed: %s", primary.name, one.container_id, error)

    def _remove(self, trace: Trace) -> None:
        """Remove what the DEL has left; a file that has changed since it was read is for the next sweep."""
        for name, address in trace.cached.host_links if trace.cached else ():
            veth.delete(name, address)
        held_by_owner = _LOCK if trace.book.kind == "host-local" else None
        host_folder.remove(self._host.root, trace.book.folder, trace.entry, held_by_owner)


class _Attachment(NamedTuple):
    container_id: str
    ifname: str
    pod: Pod


def _locked(path: str, locks: ExitStack) -> int | None:
    """Lock an attachment for as long as `locks` is open; None where a request, or what it left running, is at it."""
    try:
        fd = lock.acquire(path, wait_seconds=0)
    except CniError:
        return None
    locks.callback(lock.remove, path, fd)
    return fd
