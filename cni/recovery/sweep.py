"""The sweep, the runtime's GC of rails, and late releases of addresses: look up what each record's rule says, and do it.

The rules are `cni.recovery.rules`. Each of the three leaves a sandbox alone while a request works on it.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from math import inf

from cni.attachment.attachments import Attachments
from cni.attachment.ipam_release_by_daemon import IpamRelease
from cni.attachment.journal import Journal
from cni.host.errors import CniError
from cni.rail_observers import TookBack, count_nothing
from cni.recovery import rules
from cni.recovery.missing_netdevs import OrphanVfs
from cni.recovery.namespace_observation import Observed, SandboxNamespaces
from cni.recovery.record_repair import RecordRepair
from cni.recovery.rules import RecordState, RecoveryAction
from cni.sandbox_locks import PerKey
from railnet.errors import RailnetError
from railnet.kernel.waiting import take_outcome
from railnet.vf.record import Record

_log = logging.getLogger(__name__)
_AT_ONCE = 8  # sandboxes of one GC, of which each may need a thread
_RECORD_SECONDS = 30.0  # twice the two seconds that netdevs are awaited, a search, and a slow processor
_END_SECONDS = 2.0


class Recovery:
    """Takes back what sandboxes left of rails; `sandboxes` are the locks of sandboxes by key."""

    def __init__(  # noqa: PLR0913 - composed once
        self,
        *,
        journal: Journal,
        sandboxes: PerKey,
        namespaces: SandboxNamespaces,
        attachments: Attachments,
        ipam_release: IpamRelease,
        repair: RecordRepair,
        orphan_vfs: OrphanVfs,
        took_back: TookBack = count_nothing,
    ) -> None:
        self._journal = journal
        self._sandboxes = sandboxes
        self._namespaces = namespaces
        self._attachments = attachments
        self._ipam_release = ipam_release
        self._repair = repair
        self._orphan_vfs = orphan_vfs
        self._took_back = took_back
        self._late: set[asyncio.Task[None]] = set()
        self._acts: Mapping[RecoveryAction, Callable[[Record, Observed], Awaitable[None]]] = {
            RecoveryAction.LEAVE: _leave,
            RecoveryAction.TRY_AGAIN: _try_again,
            RecoveryAction.FOLLOW: self._follow,
            RecoveryAction.FREE_RETURNED: self._free_returned,
            RecoveryAction.FREE_RETURNED_THEN_TAKE_BACK: self._free_returned_then_take_back,
            RecoveryAction.TAKE_BACK: self._take_back,
            RecoveryAction.TAKE_BACK_AND_FORGET: self._take_back_and_forget,
            RecoveryAction.FORGET: self._forget,
            RecoveryAction.RELEASE_IPAM: self._finish,
            RecoveryAction.TAKE_BACK_WHOLLY: self._take_back_wholly,
        }

    async def sweep(self) -> None:
        """Take back the rails of sandboxes that have ended, and of ADDs and DELs that died half-way.

        A record whose VFs cannot be taken back now stays for the next sweep. A record that only waits for its IPAM plugin is
        left to `release_ipam`.

        All records at once: a netdev may take seconds to return, or never return, and the sweep waits for that only once. A record
        whose kernel call does not return within 30 s is left behind.
        """
        sweeps = {asyncio.create_task(self._sweep_unless_busy(record)): record for record in self._journal.records()}
        if not sweeps:
            return
        try:
            done, late = await asyncio.wait(sweeps, timeout=_RECORD_SECONDS)
        except asyncio.CancelledError:
            for task in sweeps:
                task.add_done_callback(take_outcome)
                task.cancel()
            await asyncio.wait(sweeps, timeout=_END_SECONDS)
            raise
        for task in late:
            self._leave_running(task, sweeps[task])
        for task in done:
            task.add_done_callback(take_outcome)  # the first error is raised, and the others have no caller then
        for task in done:
            task.result()

    def _leave_running(self, task: asyncio.Task[None], record: Record) -> None:
        """Go on without a record whose kernel call does not return. It holds its sandbox's lock, so no later sweep tries it too."""
        _log.error(
            "sandbox %s: the kernel has not answered for %g s, so the sweep goes on without it; look in dmesg",
            record.key,
            _RECORD_SECONDS,
        )
        self._late.add(task)
        task.add_done_callback(self._late.discard)
        task.add_done_callback(take_outcome)

    async def collect(self, valid: frozenset[str], younger_than: float, seconds: float = inf) -> list[str]:
        """Do the runtime's GC: take back the rails of sandboxes that are not in `valid`; return the failures, in words.

        Several at once; after `seconds` none is begun any more, and the failures have the number of those that are left.

        An ADD takes at most `younger_than` seconds: a younger record may have come after the runtime made its list.
        """
        failures: list[str] = []
        give_up = asyncio.get_running_loop().time() + seconds
        waiting, left = list(self._journal.records()), 0

        async def collect_next() -> None:
            nonlocal left
            while waiting:
                record = waiting.pop()
                if asyncio.get_running_loop().time() >= give_up:
                    left += 1
                    continue
                async with self._alone_with(record) as is_at_rest:
                    if is_at_rest:
                        failures.extend(await self._collect(record, valid, younger_than))

        await asyncio.gather(*(collect_next() for _ in range(_AT_ONCE)))
        if left:
            failures.append(f"the time was over before {left} more records were looked at; GC goes on with them")
        return failures

    async def release_ipam(self) -> None:
        """Run the IPAM plugins of ended sandboxes whose rails are back; a plugin that fails is run again the next time.

        Not part of the sweep: a plugin may hang, and neither VFs nor requests wait for it.
        """
        for record in self._journal.records():
            async with self._alone_with(record) as is_at_rest:
                if is_at_rest and rules.record_state(record) is RecordState.AWAITS_IPAM:
                    await self._act_by_rule(record, "it is tried again")

    async def find_orphans(self) -> None:
        """Find free VFs whose netdev is not on the node, as `OrphanVfs.find`."""
        await self._orphan_vfs.find()

    @asynccontextmanager
    async def _alone_with(self, record: Record) -> AsyncIterator[bool]:
        """Hold a sandbox's lock without waiting for it; yield whether it is held and the record is still as it was."""
        if self._sandboxes.is_held(record.key):
            yield False
            return
        async with self._sandboxes.held(record.key):
            yield self._journal.get(record.key) is record

    async def _sweep_unless_busy(self, record: Record) -> None:
        async with self._alone_with(record) as is_at_rest:
            if is_at_rest and rules.record_state(record) is not RecordState.AWAITS_IPAM:
                await self._act_by_rule(record, "the next sweep tries again")

    async def _act_by_rule(self, record: Record, consequence: str) -> None:
        observed = await self._namespaces.observe(record)
        rule = rules.SWEEP[rules.record_state(record), observed.state]
        try:
            await self._acts[rule.action](record, observed)
        except (OSError, ValueError, RailnetError, CniError) as error:
            _log.error("sandbox %s: %s; %s", record.key, error, consequence)

    async def _collect(self, record: Record, valid: frozenset[str], younger_than: float) -> list[str]:
        state = rules.gc_state(record, valid, self._journal.age(record), younger_than)
        observed = await self._namespaces.observe(record)
        try:
            await self._acts[rules.GC[state, observed.state].action](record, observed)
        except (OSError, ValueError, RailnetError, CniError) as error:
            _log.error("sandbox %s: %s; the next GC tries again", record.key, error)
            return [f"sandbox {record.key}: {error}"]
        return []

    async def _follow(self, record: Record, observed: Observed) -> None:
        if observed.moved_to is not None:
            self._repair.follow(record, observed.moved_to)

    async def _free_returned(self, record: Record, _: Observed) -> None:
        await self._repair.free_returned(record)

    async def _free_returned_then_take_back(self, record: Record, _: Observed) -> None:
        left = await self._repair.free_returned(record)
        if left.attachments:
            await self._detach(left)

    async def _take_back(self, record: Record, _: Observed) -> None:
        await self._detach(record)

    async def _take_back_and_forget(self, record: Record, _: Observed) -> None:
        left = await self._detach(record)
        if left.ipam is None:
            self._attachments.forget(left)

    async def _detach(self, record: Record) -> Record:
        left = await self._attachments.detach(record, None)
        _log.warning("took back what sandbox %s of pod %s/%s left", record.key, *record.pod[:2])
        self._took_back("rails")
        return left

    async def _forget(self, record: Record, _: Observed) -> None:
        self._attachments.forget(record)

    async def _finish(self, record: Record, _: Observed) -> None:
        await self._ipam_release.finish(record)

    async def _take_back_wholly(self, record: Record, _: Observed) -> None:
        _log.warning("the runtime has no sandbox %s of pod %s/%s any more", record.key, *record.pod[:2])
        await self._attachments.take_back(record)
        self._took_back("rails")


async def _leave(_record: Record, _: Observed) -> None:
    """Do nothing."""


async def _try_again(_record: Record, observed: Observed) -> None:
    if observed.error is not None:
        raise observed.error
