"""What no sandbox has any more, and what one has without a record: which, and when. What follows, others do.

`cni.attachment.attachments` takes back, `cni.recovery.record_repair` corrects records and makes them again, `cni.attachment.netdev_return` brings netdevs back.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager

from cni.attachment.attachments import Attachments
from cni.events import TookBack, count_nothing
from cni.host.errors import CniError
from vf import orphans
from vf.address import PciAddress
from vf.errors import RailnetError
from vf.orphans import Absence
from vf.record import Record
from vf.steps import ProbeAgain

_log = logging.getLogger(__name__)
_LOOK_AGAIN_SECONDS = 60.0  # a look into all namespaces takes a millisecond for each

Pods = Callable[[], Mapping[PciAddress, str] | None]


def _no_pods() -> Mapping[PciAddress, str]:
    return {}


class Recovery:
    """Sweep, GC of rails, IPAM plugins that are told late, VFs without a record. Each leaves alone what a request is at.

    `pods` gives the UIDs of the pods that kubelet gave VFs to, None where that cannot be told.
    """

    def __init__(
        self,
        rails: Attachments,
        pods: Pods = _no_pods,
        now: Callable[[], float] = time.monotonic,
        took_back: TookBack = count_nothing,
    ) -> None:
        self._took_back = took_back
        self._rails = rails
        self._pods = pods
        self._now = now
        self._absent: dict[PciAddress, Absence] = {}
        self._looked: tuple[frozenset[PciAddress], float] = (frozenset(), 0.0)

    async def sweep(self) -> None:
        """Take back what no sandbox has any more: its namespace is gone, or what was begun for it was not finished.

        A record that is not `attached` here is nobody's work in progress, since the sandbox's lock is held. One that
        cannot be taken back now stays for the next sweep; one that an IPAM plugin must be told of is for `give_back`.
        While its namespace lives a record stays, without rails: the runtime's DEL needs its primary.

        All at once: a netdev may be seconds on its way, or never come, and what waits for the sweep waits for that once.
        """
        sweeps = [self._sweep_alone(record) for record in self._rails.records()]
        for outcome in await asyncio.gather(*sweeps, return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome

    async def collect(self, valid: frozenset[str], younger_than: float) -> list[str]:
        """Take back what sandboxes have that the runtime does not list; gives what failed, in words. The others are done.

        Who lives may have come after the runtime made its list: one that a request is at, or whose namespace is there and
        whose record is younger than an ADD may take (seconds). One whose name the runtime cannot know lives while its
        namespace does.
        """
        failures = []
        for record in self._rails.records():
            async with self._alone_with(record) as at_rest:
                if at_rest and record.key not in valid:
                    failures += await self._collect(record, younger_than)
        return failures

    async def give_back(self) -> None:
        """Have IPAM plugins told of rails that the sweep took back; what fails now is for the next time.

        Not the sweep's: a plugin may hang, and neither VFs nor requests wait for it. Not while the namespace lives: then the
        runtime's DEL does it, with the primary as it was recorded.
        """
        for record in self._rails.records():
            async with self._alone_with(record) as at_rest:
                if at_rest and _waits_for_ipam(record):
                    await self._give_back(record)

    async def look(self) -> None:
        """Find free VFs whose netdev is not here: in a sandbox whose record was lost, in a namespace of somebody's, or nowhere.

        The first are owned again, with a record made of what the kernel shows, and are never given to another pod while
        that namespace lives. The last have their driver bound anew, some times.
        """
        try:
            await self._look()
        except OSError as error:
            _log.error("VFs that are not on the node cannot be looked for: %s", error)

    @asynccontextmanager
    async def _alone_with(self, record: Record) -> AsyncIterator[bool]:
        """Hold a sandbox's lock where nobody is at it, and never wait for one; gives whether the record may be acted on."""
        if self._rails.one_at_a_time.is_held(record.key):
            yield False
            return
        async with self._rails.one_at_a_time.held(record.key):
            yield self._rails.record(record.key) is record

    async def _sweep_alone(self, record: Record) -> None:
        async with self._alone_with(record) as at_rest:
            if at_rest and not _waits_for_ipam(record):
                await self._sweep(record)

    async def _sweep(self, record: Record) -> None:
        try:
            gone = self._rails.namespace_is_gone(record)
            if not (gone or record.named):
                record = self._rails.adoption.let_go(record)
            if not gone and (record.stage == "attached" or not record.attachments):
                return
            if gone and await self._rails.adoption.follow(record):
                return
            left = await self._rails.detach(record, None)
            if record.attachments:  # else its rails were back, and only the DEL that never came was waited for
                _log.warning("took back what sandbox %s of pod %s/%s left", record.key, *record.pod[:2])
                self._took_back("rails")
            if gone and left.ipam is None:
                self._rails.forget(left)
        except (OSError, RailnetError) as error:
            _log.error("sandbox %s: %s; the next sweep tries again", record.key, error)

    async def _look(self) -> None:
        await self._rails.home.rename_free()
        now, pods = self._now(), self._pods()
        missing = {vf.address: vf for vf in self._rails.home.missing()}
        # Where it is not known who has what, nobody's device is taken away.
        known = {vf: uid for vf, uid in (pods or {}).items() if vf not in self._rails.taken_back}
        in_use = missing.keys() if pods is None else known.keys()
        self._absent = {vf: self._absent.get(vf, Absence(now, 0)) for vf in missing}
        if missing and self._is_due(now, in_use):
            self._looked = frozenset(missing), now
            strays = await self._rails.home.strays(missing)
            self._rails.adoption.adopt(strays, known)
            self._absent = {vf: absence for vf, absence in self._absent.items() if vf not in strays}
            for step in orphans.probe(self._rails.inventory, self._absent, in_use, now):
                await self._probe_again(step)
            still = {vf.address for vf in self._rails.home.missing()}
            self._absent = {vf: absence for vf, absence in self._absent.items() if vf in still}
        self._rails.withhold(self._reasons(in_use, known))

    def _is_due(self, now: float, in_use: Collection[PciAddress]) -> bool:
        """Tell whether it may be otherwise than at the last look, or something was to be done by now."""
        vfs, at = self._looked
        if vfs != self._absent.keys() or now - at >= _LOOK_AGAIN_SECONDS:
            return True
        return orphans.is_pending(self._rails.inventory, self._absent, in_use)

    async def _probe_again(self, step: ProbeAgain) -> None:
        absence = self._absent[step.vf]
        self._absent[step.vf] = absence._replace(tries=absence.tries + 1)
        try:
            await self._rails.home.probe_again(step)
        except OSError as error:
            _log.error("VF %s: %s was not bound again: %s", step.vf, step.driver, error)

    def _reasons(self, in_use: Collection[PciAddress], pods: Mapping[PciAddress, str]) -> dict[PciAddress, str]:
        inventory = self._rails.inventory
        absent = {
            vf: orphans.reason(inventory, found, absence, in_use=vf in in_use)
            for vf, absence in self._absent.items()
            if (found := inventory.vf(vf)) is not None
        }
        nameless = [
            (record, one.vf) for record in self._rails.records() if not record.named for one in record.attachments
        ]
        return absent | {vf: orphans.stranded(record, vf) for record, vf in nameless if vf not in pods}

    async def _collect(self, record: Record, younger_than: float) -> list[str]:
        try:
            if (record.named and self._rails.age(record) >= younger_than) or self._rails.namespace_is_gone(record):
                _log.warning("the runtime has no sandbox %s of pod %s/%s any more", record.key, *record.pod[:2])
                await self._rails.take_back(record)
                self._took_back("rails")
        except (OSError, RailnetError, CniError) as error:
            _log.error("sandbox %s: %s; the next GC tries again", record.key, error)
            return [f"sandbox {record.key}: {error}"]
        return []

    async def _give_back(self, record: Record) -> None:
        try:
            if self._rails.namespace_is_gone(record):
                await self._rails.tell_ipam(record)
        except (OSError, CniError) as error:
            _log.error("sandbox %s: %s; it is tried again", record.key, error)


def _waits_for_ipam(record: Record) -> bool:
    """Tell whether its rails are back already, and all that is left is to tell its IPAM plugin."""
    return not record.attachments and record.ipam is not None
