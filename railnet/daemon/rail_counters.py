"""The counters of pods, rails and ports for /metrics (docs/decisions/0066). `railnet.fabric.rdma_counter_deltas` decides what they say.

A scrape reads what may have moved, in threads, and waits for them two seconds at most. Between scrapes only a VF that a sandbox
has just claimed is read: its reading is where the pod begins.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import NamedTuple

from railnet.fabric.rdma_counter_deltas import (
    OCTETS_OF_A_WORD,
    OF_A_PF,
    OF_A_VF,
    RECEIVED,
    RECEIVED_PACKETS,
    TRANSMITTED,
    TRANSMITTED_PACKETS,
    Counters,
    Tally,
    over_ports,
    ports_of,
    saturated,
    summed,
    tallied,
)
from railnet.kernel.sysfs.functions import Sysfs
from railnet.kernel.sysfs.rdma_counters import read_counters
from railnet.kernel.threads.bounded_reads import BoundedReads, card_by_card
from railnet.prometheus_text import Labels, Sample, family
from railnet.vf.inventory import RdmaDevice
from railnet.vf.pci_address import PciAddress
from railnet.vf.record import Record
from railnet.vf.vf_table import Owner, VfTable

_log = logging.getLogger(__name__)
# Shorter than for an inventory's reads: Prometheus waits for the answer, and a function that answers later is read again then.
_SECONDS_OF_A_FUNCTION = 0.5
_SECONDS_OF_A_SCRAPE = 2.0
_PAUSE_SECONDS = 1.0  # scrapes within it share one reading, so that many of them cost the cards nothing
_TRAFFIC = {  # file → what follows `railnet_pod_`, `railnet_rail_` or `railnet_port_`; factor; words
    RECEIVED: ("received_bytes_total", OCTETS_OF_A_WORD, "Bytes received"),
    TRANSMITTED: ("transmitted_bytes_total", OCTETS_OF_A_WORD, "Bytes transmitted"),
    RECEIVED_PACKETS: ("received_packets_total", 1, "Packets received"),
    TRANSMITTED_PACKETS: ("transmitted_packets_total", 1, "Packets transmitted"),
}


class Source(NamedTuple):
    """A function to read: its RDMA device, the device's data ports, the number of its rail, the card that it belongs to, and the files."""

    function: PciAddress
    device: str
    ports: tuple[int, ...]
    rail: int
    card: PciAddress
    names: tuple[str, ...]


class CountedFunction(NamedTuple):
    """A function that was read: as what, its tally, and whether the last try succeeded."""

    source: Source
    tally: Tally
    answered: bool


class RailCounters:
    """The tallies of one daemon's functions; `records` returns the journal's. One event loop owns it."""

    def __init__(self, table: VfTable, sysfs: Sysfs, records: Callable[[], Iterable[Record]]) -> None:
        """Read nothing yet."""
        self._table, self._sysfs, self._records = table, sysfs, records
        self._reads = BoundedReads(_SECONDS_OF_A_FUNCTION)
        self._known: dict[PciAddress, CountedFunction] = {}
        # A reading that began earlier must not be counted after a later one: it would look like a reset.
        self._turns: dict[Hashable, asyncio.Lock] = {}
        self._scrape: asyncio.Task[None] | None = None
        self._scrape_after = 0.0
        self.text = ""

    @property
    def hung(self) -> Counter[str]:
        """The number of threads that wait for a counter that does not return, by card."""
        return self._reads.hung

    async def serve(self) -> None:
        """Read each VF when a sandbox claims it, until cancelled."""
        changed = asyncio.Event()
        stop = self._table.observe(changed.set)
        try:
            while True:
                changed.clear()
                new_functions = list(filter(self._has_begun, self._table.owned()))
                if new_functions:  # most changes of the table are no claims
                    await self._read(source for function in new_functions for source in self._sources_of(function))
                await changed.wait()
        finally:
            stop()

    async def fresh(self) -> None:
        """Have `text` made of a new reading, unless one was made within a second; a card that does not answer is not waited for."""
        if self._scrape is None and time.monotonic() >= self._scrape_after:
            self._scrape = asyncio.create_task(self._scraped())
        if self._scrape is not None:
            await asyncio.wait((self._scrape,), timeout=_SECONDS_OF_A_SCRAPE)

    async def _scraped(self) -> None:
        try:
            sources = tuple(self._sources())
            self._forget_readings(set(self._known).difference(source.function for source in sources))
            await self._read(source for source in sources if self._is_due(source))
            self.text = await asyncio.to_thread(text, dict(self._known), tuple(self._records()))
        except Exception:  # noqa: BLE001 - the scrape has all other metrics
            _log.exception("the counters of the rails are not read; report this error")
        finally:
            self._scrape, self._scrape_after = None, time.monotonic() + _PAUSE_SECONDS

    def _sources(self) -> Iterator[Source]:
        for number, rail in enumerate(self._table.inventory.rails):
            if rail.pf is not None:
                yield from _source(rail.pf.address, rail.pf.rdma, number, rail.address, OF_A_PF)
            for vf in rail.vfs:
                yield from _source(vf.address, vf.rdma, number, rail.address, OF_A_VF)

    def _sources_of(self, function: PciAddress) -> Iterator[Source]:
        """Yield the source that a VF is, without a look at all others."""
        for number, rail in enumerate(self._table.inventory.rails):
            vf = rail.vf(function)
            if vf is not None:
                yield from _source(function, vf.rdma, number, rail.address, OF_A_VF)

    def _has_begun(self, function: PciAddress) -> bool:
        owner, known = self._table.owner(function), self._known.get(function)
        return owner is not None and (known is None or known.tally.holder != owner)

    def _is_due(self, source: Source) -> bool:
        """Return whether a counter may have moved: a VF that no sandbox has, and none had at the last reading, is idle."""
        known = self._known.get(source.function)
        return (
            known is None
            or not known.answered
            or source.names is OF_A_PF
            or known.tally.holder is not None
            or self._table.owner(source.function) is not None
        )

    async def _read(self, sources: Iterable[Source]) -> None:
        cards: dict[PciAddress, dict[PciAddress, Source]] = {}
        for source in sources:
            cards.setdefault(source.card, {})[source.function] = source
        if len(cards) == 1:  # as at a claim; a task would be waste
            await self._read_card(*next(iter(cards.items())))
        else:
            await card_by_card(self._read_card(card, wanted) for card, wanted in cards.items())

    async def _read_card(self, card: PciAddress, sources: Mapping[PciAddress, Source]) -> None:
        def work(function: PciAddress) -> dict[str, int]:
            source = sources[function]
            return read_counters(self._sysfs, function, source.device, ports[function], source.names)

        async with self._turns.setdefault(card, asyncio.Lock()):
            owners = {function: self._table.owner(function) for function in sources}
            ports = {function: self._ports(source) for function, source in sources.items()}
            for function, reading in (await self._reads.read_each(card, sources, work)).items():
                self._note(sources[function], reading, owners[function])

    def _ports(self, source: Source) -> list[int]:
        """Return the ports to read. A port that carried data once is read on: without it, the sum over all ports would fall."""
        known = self._known.get(source.function)
        return sorted({*source.ports, *(() if known is None else ports_of(known.tally.last))})

    def _forget_readings(self, gone: Iterable[PciAddress]) -> None:
        """Keep only the totals of functions that have no RDMA device any more."""
        for function in gone:
            known = self._known[function]
            self._known[function] = known._replace(tally=tallied(known.tally, {}, None), answered=True)

    def _note(self, source: Source, reading: Counters | Exception, owner: Owner | None) -> None:
        known = self._known.get(source.function)
        before = Tally() if known is None else known.tally
        if isinstance(reading, Exception):
            self._known[source.function] = CountedFunction(source, before, answered=False)
            return
        holder = owner if owner == self._table.owner(source.function) else None
        self._known[source.function] = CountedFunction(source, tallied(before, reading, holder), answered=True)


def _source(
    function: PciAddress, rdma: RdmaDevice | None, rail: int, card: PciAddress, names: tuple[str, ...]
) -> Iterator[Source]:
    if rdma is not None:
        yield Source(function, rdma.name, rdma.data_ports, rail, card, names)


def text(known: Mapping[PciAddress, CountedFunction], records: Iterable[Record]) -> str:
    """Return the families of pods, rails and ports as text. Pods have series while their record exists; rails have them for ever."""
    readings: dict[Labels, Counters] = {
        (("rail", str(function.source.rail)),): function.tally.reading
        for function in known.values()
        if function.source.names is OF_A_PF and function.answered
    }
    unread: dict[Labels, int] = {}
    for function in known.values():
        labels = (("card", str(function.source.card)),)
        unread[labels] = unread.get(labels, 0) + (not function.answered)
    lines = [
        *_families("pod", "by the VF that a pod has", _pods(known, records)),
        *_families("rail", "by all VFs of a rail, also for pods that have ended", _rails(known)),
        *_families("port", "by the ports of a rail's PF", _over_ports(readings)),
        *family(
            "railnet_port_events_saturated",
            "gauge",
            "Counters that have reached their largest value and count no more.",
            [
                ("", (*labels, ("counter", _word(name))), 1)
                for labels, counters in readings.items()
                for name in saturated(counters)
            ],
        ),
        *family(
            "railnet_counters_unread",
            "gauge",
            "Functions of a card without counters: they do not answer.",
            [("", labels, count) for labels, count in unread.items()],
        ),
    ]
    return "".join(f"{line}\n" for line in lines)


def _pods(known: Mapping[PciAddress, CountedFunction], records: Iterable[Record]) -> dict[Labels, Counters]:
    counters: dict[Labels, Counters] = {}
    for record in records:
        for rail in record.attachments:
            function = known.get(rail.vf)
            holder = None if function is None else function.tally.holder
            if (
                function is None
                or holder is None
                or not function.answered
                or holder[:2] != (record.container_id, record.ifname)
            ):
                continue
            labels = (
                ("namespace", record.pod.namespace),
                ("pod", record.pod.name),
                ("rail", str(rail.rail)),
                ("device", function.source.device),
            )
            counters[labels] = over_ports(function.tally.moved())
    return counters


def _rails(known: Mapping[PciAddress, CountedFunction]) -> dict[Labels, Counters]:
    totals: dict[int, list[Counters]] = {}
    for function in known.values():
        if function.source.names is OF_A_VF:
            totals.setdefault(function.source.rail, []).append(over_ports(function.tally.total))
    return {(("rail", str(rail)),): summed(each) for rail, each in sorted(totals.items())}


def _over_ports(readings: Mapping[Labels, Counters]) -> dict[Labels, Counters]:
    return {labels: over_ports(counters) for labels, counters in readings.items()}


def _families(what: str, by: str, series: Mapping[Labels, Counters]) -> Iterator[str]:
    for name, (suffix, factor, words) in _TRAFFIC.items():
        samples = _traffic(series, name, factor)
        yield from family(f"railnet_{what}_{suffix}", "counter", f"{words} {by}.", samples)
    events = (
        ("", (*labels, ("counter", _word(name))), value)
        for labels, counters in series.items()
        for name, value in counters.items()
        if name not in _TRAFFIC
    )
    yield from family(f"railnet_{what}_events_total", "counter", f"Errors and congestion counted {by}.", events)


def _traffic(series: Mapping[Labels, Counters], name: str, factor: int) -> Iterator[Sample]:
    for labels, counters in series.items():
        if name in counters:
            yield "", labels, counters[name] * factor


def _word(name: str) -> str:
    return name.partition("/")[2]
