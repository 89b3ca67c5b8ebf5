"""Watches for rails that pods have lost, and tells of each once. `railnet.vf.lost_rails` decides which those are."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable

from cni.rail_observers import Observer, RailChanged
from railnet.vf.lost_rails import LostRails, lost_rails
from railnet.vf.record import Record
from railnet.vf.vf_table import VfTable

_log = logging.getLogger(__name__)
_PAUSE_SECONDS = 5.0
# After an ADD the table may show the VF where it was before, until all is read again: each ten seconds (`railnet.daemon.resync.periodic_resync`).
_YOUNG_SECONDS = 25.0
_REASON = "RailnetRailLost"


class LostRailsWatch:
    """Knows the rails that are lost, by two looks. One event loop owns it.

    `records` returns the journal's records, each with the seconds since it was last written.
    """

    def __init__(
        self, table: VfTable, records: Callable[[], Iterable[tuple[Record, float]]], observe: Observer
    ) -> None:
        """Have seen nothing yet; `observe` is told of each rail that is lost."""
        self._table, self._records, self._observe = table, records, observe
        self._seen: LostRails = {}
        self.lost: LostRails = {}

    async def serve(self) -> None:
        """Look again and again."""
        while True:
            self.look()
            await asyncio.sleep(_PAUSE_SECONDS)

    def look(self) -> None:
        """Look at all records; a rail that was lost at the last look, too, is lost."""
        records = [record for record, seconds in self._records() if seconds >= _YOUNG_SECONDS]
        seen = lost_rails(self._table.inventory, records)
        before, self.lost = self.lost, {rail: why for rail, why in seen.items() if rail in self._seen}
        self._seen = seen
        pods = {record.key: record.pod for record in records}
        for rail in self.lost.keys() - before.keys():
            pod = pods[rail.key]
            text = f"pod {pod.namespace}/{pod.name} has lost {rail.ifname}: VF {rail.vf} {self.lost[rail]}. Delete the pod: its controller makes another"
            _log.error("sandbox %s: %s", rail.key, text)
            self._observe(RailChanged(_REASON, text, warning=True, pods=(pod,)))

    def by_rail(self) -> dict[int, int]:
        """Return how many pods' rails are lost, by the number of the rail."""
        numbers = {
            (record.key, attachment.vf): attachment.rail
            for record, _ in self._records()
            for attachment in record.attachments
        }
        return dict(Counter(numbers[rail.key, rail.vf] for rail in self.lost if (rail.key, rail.vf) in numbers))
