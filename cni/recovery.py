"""What no sandbox has any more: which records that is true of, and when. `cni.rails` does what follows."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from cni.host.errors import CniError
from cni.rails import Rails
from vf.errors import RailnetError
from vf.record import Record

_log = logging.getLogger(__name__)


class Recovery:
    """Sweep, GC of rails, and IPAM plugins that are told late. Each leaves alone what a request is at."""

    def __init__(self, rails: Rails) -> None:
        self._rails = rails

    async def sweep(self, *, at_start: bool) -> None:
        """Take back what no sandbox has any more: its namespace is gone. At start also what was begun and not finished.

        A record that is not `attached` here is nobody's work in progress, since the sandbox's lock is held. One that
        cannot be taken back now stays for the next sweep; one that an IPAM plugin must be told of is for `give_back`.
        """
        for record in self._rails.records():
            async with self._alone_with(record) as at_rest:
                if at_rest and not _waits_for_ipam(record):
                    await self._sweep(record, at_start)

    async def collect(self, valid: frozenset[str], younger_than: float) -> list[str]:
        """Take back what sandboxes have that the runtime does not list; gives what failed, in words. The others are done.

        Who lives may have come after the runtime made its list: one that a request is at, or whose namespace is there and
        whose record is younger than an ADD may take (seconds).
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

    @asynccontextmanager
    async def _alone_with(self, record: Record) -> AsyncIterator[bool]:
        """Hold a sandbox's lock where nobody is at it, and never wait for one; gives whether the record may be acted on."""
        if self._rails.one_at_a_time.is_held(record.key):
            yield False
            return
        async with self._rails.one_at_a_time.held(record.key):
            yield self._rails.record(record.key) is record

    async def _sweep(self, record: Record, at_start: bool) -> None:
        pod = record.pod
        try:
            if (at_start and record.stage != "attached") or self._rails.namespace_is_gone(record):
                _log.warning("taking back what sandbox %s of pod %s/%s left", record.key, pod.namespace, pod.name)
                left = await self._rails.detach(record, None)
                if left.ipam is None:
                    self._rails.forget(left)
        except (OSError, RailnetError) as error:
            _log.error("sandbox %s: %s; the next sweep tries again", record.key, error)

    async def _collect(self, record: Record, younger_than: float) -> list[str]:
        try:
            if self._rails.age(record) >= younger_than or self._rails.namespace_is_gone(record):
                _log.warning("the runtime has no sandbox %s of pod %s/%s any more", record.key, *record.pod[:2])
                await self._rails.take_back(record)
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
