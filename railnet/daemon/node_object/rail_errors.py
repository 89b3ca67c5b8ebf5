"""Watches what is wrong with rails that are ACTIVE: errors that their ports count, and what the kernel's log says of their cards.

`railnet.fabric.port_counter_thresholds` and `railnet.fabric.kernel_messages` decide what is too much, and when it is over (docs/decisions/0088);
the node's condition says it. Only PFs of rails that pods can have are looked at: a card of the management network, or a port that nothing
is plugged into, is no rail. Device nodes are not looked at.

| what happens | what is done |
|---|---|
| a counter's file hangs | its card is not read again until the read returns; what is known of it stays for an hour |
| a card lacks a counter, or its driver refuses the read | that file is read again after ten minutes, or when the port is ACTIVE anew: some drivers log each refusal |
| no file of a card can be read | it is read once more, since the driver may be loaded anew just now; then as above |
| the log cannot be opened | it is said once, and tried again each minute |
| the log is flooded | a second reads at most a few hundred records, and keeps none of them |
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from cni.rail_observers import Observer, RailChanged
from railnet.configuration import Configuration
from railnet.daemon.node_object.loop import moment
from railnet.daemon.node_object.topology_labels import labelled_rails
from railnet.fabric import kernel_messages, port_counter_thresholds
from railnet.fabric.kernel_messages import CardMessage, KernelIncident
from railnet.fabric.port_counter_thresholds import PortHistory, PortReading, PortState
from railnet.fabric.rails_condition import Errors, Moment, RailError, error_news
from railnet.kernel.kernel_log import KernelLog
from railnet.kernel.sysfs.functions import Sysfs
from railnet.kernel.sysfs.rdma_counters import read_counters
from railnet.kernel.threads.bounded_reads import BoundedReads, card_by_card
from railnet.prometheus_text import Labels, counted, family
from railnet.vf.inventory import RdmaDevice
from railnet.vf.pci_address import PciAddress
from railnet.vf.record import SandboxPod
from railnet.vf.vf_table import VfTable

_log = logging.getLogger(__name__)
_PAUSE_SECONDS = 10.0  # between two readings of the ports; no threshold has a shorter time
_LOG_PAUSE_SECONDS = 1.0
_MOST_RECORDS = 400  # of one second: the daemon's one processor is for requests
_LOG_AGAIN_SECONDS = 60.0
_ABSENT_SECONDS = 600.0


class _Port(NamedTuple):
    """The port of a rail's PF; `rdma` is None while the driver shows no RDMA device, as while it recovers the card."""

    pf: PciAddress
    rdma: RdmaDevice | None

    @property
    def identity(self) -> tuple[str, str] | None:
        """What another card in the slot has otherwise; None while it is not known."""
        return None if self.rdma is None else (str(self.pf), str(self.rdma.node_guid))

    def is_meant(self, message: CardMessage) -> bool:
        """Return whether the kernel speaks of this PF."""
        return str(self.pf) == message.pci or (self.rdma is not None and self.rdma.name == message.rdma)


class RailErrors:
    """What is wrong with the ports of rails that are ACTIVE. One event loop owns it.

    Attributes:
        trouble: why the kernel's log is not read; None if it is, or if it is not wanted.
    """

    def __init__(
        self,
        configuration: Configuration,
        table: VfTable,
        sysfs: Sysfs,
        observe: Observer,
        pods: Callable[[int], tuple[SandboxPod, ...]],
        port_state: Callable[[int], PortState] = lambda _: PortState(None),
    ) -> None:
        """Have seen nothing yet; `observe` is told of what begins and ends, `pods` returns those that have a rail.

        `port_state` returns what the condition knows of a rail's port.
        """
        self._configuration, self._table, self._sysfs = configuration, table, sysfs
        self._observe, self._pods, self._port_state = observe, pods, port_state
        self._reads = BoundedReads()
        self._ports: dict[int, PortHistory] = {}
        self._absent: dict[tuple[PciAddress, str], float] = {}  # when it was noted
        self._silent: set[PciAddress] = set()  # whose last reading brought nothing
        self._incidents: dict[int, Mapping[str, KernelIncident]] = {}
        self._identities: dict[int, tuple[str, str] | None] = {}  # of the cards that incidents are about
        self._messages: Counter[Labels] = Counter()
        self._overruns = 0
        self._told: Errors = {}
        self.trouble: str | None = None

    @property
    def hung(self) -> Counter[str]:
        """The number of threads that wait for a counter that does not return, by card."""
        return self._reads.hung

    def work(self) -> dict[str, Callable[[], Awaitable[None]]]:
        """Return what lasts as long as the daemon, by title; nothing without the condition, which alone says what was found."""
        publish = self._configuration.publish
        work: dict[str, Callable[[], Awaitable[None]]] = {}
        if publish.rails_condition:
            work["the errors of the ports"] = self.serve_ports
        if publish.kernel_messages:
            work["the kernel's log"] = self.serve_log
        return work

    def errors(self) -> Errors:
        """Return what is wrong now, by rail."""
        errors: dict[int, tuple[RailError, ...]] = {}
        for rail in sorted({*self._ports, *self._incidents}):
            port, incidents = self._ports.get(rail), self._incidents.get(rail, {})
            of_port = () if port is None else port_counter_thresholds.errors(port)
            if of_rail := (*kernel_messages.errors(incidents), *of_port):
                errors[rail] = of_rail
        return errors

    def text(self) -> str:
        """Return the families of /metrics."""
        errors: set[Labels] = {
            (("rail", str(rail)), ("error", error.name), ("severity", "severe" if error.severe else "slight"))
            for rail, of_rail in self.errors().items()
            for error in of_rail
        }
        words = "Errors of rails that the node's condition names."
        lines = [*family("railnet_rail_errors", "gauge", words, counted(Counter(errors)))]
        if self._configuration.publish.kernel_messages:
            words = "Messages of the kernel about the cards of rails."
            lines += family("railnet_kernel_messages_total", "counter", words, counted(self._messages))
            words = "How often the kernel's log was overwritten before it was read."
            lines += family("railnet_kernel_log_overruns_total", "counter", words, [("", (), self._overruns)])
        return "".join(f"{line}\n" for line in lines)

    async def serve_ports(self) -> None:
        """Read the ports again and again."""
        while True:
            await self.look()
            await asyncio.sleep(_PAUSE_SECONDS)

    async def serve_log(self) -> None:
        """Read the kernel's log for ever."""
        path = self._configuration.host.kernel_log
        while True:
            try:
                with KernelLog(path) as log:
                    self.trouble = None
                    while True:
                        self.look_at_log(log)
                        await asyncio.sleep(_LOG_PAUSE_SECONDS)
            except OSError as error:
                trouble = f"{path}: {error.strerror}: the container needs this device (the value railsCondition.kernelMessages), or name it by host.kernelLog"
                if trouble != self.trouble:
                    _log.warning("the kernel's log is not read: %s", trouble)
                self.trouble = trouble
            await asyncio.sleep(_LOG_AGAIN_SECONDS)

    async def look(self) -> None:
        """Read the ports of all rails, each card for itself, and judge them."""
        ports = self._ports_of_rails()
        if ports is None:
            return
        self._forget(ports)
        await card_by_card(self._look_at(rail, port) for rail, port in ports.items())
        self._lasting()
        self._tell()

    def look_at_log(self, log: KernelLog) -> None:
        """Read what the kernel has said since the last look.

        Raises:
            OSError: as `KernelLog.records`.
        """
        overruns, now = log.lost, moment()
        parsed = filter(None, map(kernel_messages.parse_record, log.records(_MOST_RECORDS)))
        if messages := list(filter(None, map(kernel_messages.recognised, parsed))):
            self._note(messages, now)
        self._overruns += log.lost - overruns
        self._lasting()
        self._tell()

    def _ports_of_rails(self) -> dict[int, _Port] | None:
        """Return the ports by rail; None while the rails' numbers are not known."""
        rails = labelled_rails(self._configuration, self._table.inventory)
        if rails is None:
            return None
        return {number: _Port(rail.pf.address, rail.pf.rdma) for number, rail in rails.items() if rail.pf is not None}

    def _forget(self, ports: Mapping[int, _Port]) -> None:
        """Forget what was of a rail that is gone, or of a card that was in the place of another."""
        self._ports = {rail: history for rail, history in self._ports.items() if rail in ports}
        for rail, incidents in list(self._incidents.items()):
            known = self._identities.get(rail)
            if rail in ports and known is None:
                self._identities[rail] = ports[rail].identity
            elif rail not in ports or ports[rail].identity not in (known, None):
                del self._incidents[rail]
                _log.info("rail %d has another card: %d messages of the kernel are forgotten", rail, len(incidents))
        now = moment().seconds
        self._absent = {key: noted for key, noted in self._absent.items() if now - noted < _ABSENT_SECONDS}

    async def _look_at(self, rail: int, port: _Port) -> None:
        reading = None if port.rdma is None else await self._reading(rail, port, port.rdma)
        history = port_counter_thresholds.judged(
            self._ports.get(rail), reading, self._port_state(rail), self._configuration.port_thresholds, moment()
        )
        if history is not None:
            self._ports[rail] = history

    async def _reading(self, rail: int, port: _Port, rdma: RdmaDevice) -> PortReading | None:
        def work(pf: PciAddress) -> dict[str, int]:
            return read_counters(self._sysfs, pf, rdma.name, rdma.data_ports, names)

        names = self._names(port.pf, self._port_state(rail))
        if not names:
            return PortReading(port.identity, rdma.name, {})
        outcome = (await self._reads.read_each(port.pf, (port.pf,), work))[port.pf]
        if isinstance(outcome, Exception):
            return None
        self._note_absent(port.pf, names, {key.split("/", 2)[2] for key in outcome})
        return PortReading(port.identity, rdma.name, outcome)

    def _names(self, pf: PciAddress, state: PortState) -> list[str]:
        """Return the files to read. What was noted as absent before the port became ACTIVE says nothing: the driver may have been loaded anew."""
        since = state.active_since
        absent = {name for of, name in self._absent if of == pf and (since is None or since <= self._absent[of, name])}
        return [name for name in self._configuration.port_thresholds.names if name not in absent]

    def _note_absent(self, pf: PciAddress, names: Iterable[str], has: Collection[str]) -> None:
        """Note the files that did not come, if others did. If none came, the card may be in a reset, so only the second such reading says it."""
        if has or pf in self._silent:
            now = moment().seconds
            self._absent |= {(pf, name): now for name in names if name not in has}
        if has:
            self._silent.discard(pf)
        else:
            self._silent.add(pf)

    def _note(self, messages: Iterable[CardMessage], now: Moment) -> None:
        ports = self._ports_of_rails() or {}
        for message in messages:
            for rail, port in ports.items():
                if port.is_meant(message):
                    self._messages[("rail", str(rail)), ("kind", message.kind.name)] += 1
                    self._incidents[rail] = kernel_messages.noted(self._incidents.get(rail, {}), message, now)
                    self._identities[rail] = port.identity or self._identities.get(rail)

    def _lasting(self) -> None:
        now, recovery = moment(), self._configuration.port_thresholds.recovery
        left = ((rail, kernel_messages.lasting(of_rail, recovery, now)) for rail, of_rail in self._incidents.items())
        self._incidents = {rail: of_rail for rail, of_rail in left if of_rail}

    def _tell(self) -> None:
        before, self._told = self._told, self.errors()
        for news in error_news(before, self._told):
            pods = self._pods(news.rail)
            _log.log(
                logging.WARNING if news.warning else logging.INFO, "%s; pods that have it: %d", news.text, len(pods)
            )
            self._observe(RailChanged(news.reason, news.text, news.warning, pods))


def lines(errors: Errors) -> Iterator[str]:
    """Yield a line for each error, for `railnet status`."""
    for rail, of_rail in sorted(errors.items()):
        yield from (f"rail {rail}: {error.text}" for error in of_rail)
