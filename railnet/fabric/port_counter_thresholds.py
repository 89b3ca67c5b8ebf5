"""When the errors that a rail's port counts are too many, and when that is over. Pure.

A counter counts since its card was reset, so its value says nothing: only what it moved between two readings of this daemon is judged.

Source: the names are the files of Documentation/ABI/stable/sysfs-class-infiniband. The numbers are those of NVSentinel
(NVIDIA/NVSentinel, distros/kubernetes/nvsentinel/charts/nic-health-monitor/values.yaml), where `PortThresholds` says nothing else.
"""

import itertools
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from railnet.fabric.rails_condition import Moment, RailError, time_text
from railnet.fabric.rdma_counter_deltas import is_saturated, largest

REASON = "PortErrors"
_FOLDER = "counters/"
_MOST_SPANS = 64  # of a counter; an hour's threshold is judged by the minute
_UNREAD_SECONDS = 3600.0  # a counter that was not read for so long is forgotten
# What begins while a link is lost is the link's training, and the condition says that the port is lost. A loss itself is counted, unless
# it became an incident of the condition.
_OF_LOSSES = "link_downed"
# A longer pause between two readings may hide an incident that is over. Three times the ten seconds that the daemon waits.
_LONGEST_OF_LOSSES = 30.0


class Threshold(NamedTuple):
    """More than `events` within `seconds` are too many."""

    events: int
    seconds: float

    def __str__(self) -> str:
        """Return it as node.yaml has it, such as 120/60m."""
        minutes, rest = divmod(self.seconds, 60)
        return f"{self.events}/{self.seconds:g}s" if rest or not minutes else f"{self.events}/{minutes:g}m"


class PortThresholds(NamedTuple):
    """The thresholds of a port by counter; None for a counter that is not judged.

    Attributes:
        symbol_error: NVSentinel's `symbol_error_fatal`, 120 an hour.
        link_downed: gpud calls a port flapping that came back three times (leptonai/gpud,
            components/accelerator/nvidia/infiniband/store/scan_flaps.go); NVSentinel takes one loss for fatal, which a switch that starts anew is not.
        link_error_recovery: 5 a minute.
        local_link_integrity_errors: NVSentinel takes each for fatal. The counter has four bits.
        excessive_buffer_overrun_errors: as before.
        port_rcv_errors: 10 a second.
        port_xmit_discards: 100 a second.
        port_xmit_wait: NVSentinel knows the counter and does not judge it: its tick differs between cards.
        recovery: an excess is over when the rate of so many seconds is at most half of the threshold's.
    """

    symbol_error: Threshold | None = Threshold(120, 3600.0)
    link_downed: Threshold | None = Threshold(2, 3600.0)
    link_error_recovery: Threshold | None = Threshold(5, 60.0)
    local_link_integrity_errors: Threshold | None = Threshold(3, 3600.0)
    excessive_buffer_overrun_errors: Threshold | None = Threshold(3, 3600.0)
    port_rcv_errors: Threshold | None = Threshold(600, 60.0)
    port_xmit_discards: Threshold | None = Threshold(6000, 60.0)
    port_xmit_wait: Threshold | None = None
    recovery: float = 600.0

    @classmethod
    def none(cls) -> "PortThresholds":
        """Return the thresholds with which no counter is judged."""
        nothing: dict[str, Any] = dict.fromkeys(COUNTERS)
        return cls(**nothing)

    def of(self, counter: str) -> Threshold | None:
        """Return the threshold of a counter; None if the counter is not judged."""
        threshold: Threshold | None = getattr(self, counter) if counter in COUNTERS else None
        return threshold

    def unreachable(self) -> Iterator[tuple[str, int]]:
        """Yield each counter that stops at a value, which comes with it, before its threshold could be exceeded."""
        for counter in COUNTERS:
            threshold, stop = self.of(counter), largest(_FOLDER + counter)
            if threshold is not None and threshold.events >= stop:
                yield counter, stop

    @property
    def names(self) -> tuple[str, ...]:
        """Return the files to read, below `ports/<number>`."""
        return tuple(_FOLDER + counter for counter in COUNTERS if self.of(counter) is not None)


COUNTERS = tuple(name for name in PortThresholds._fields if name != "recovery")
_LINK = "check the cable, the transceivers and the switch port"
# These can be caused by other ports of the fabric, so they say nothing against this card: the condition stays True. NVSentinel does not
# take them for fatal either.
_OF_THE_FABRIC = {
    "port_rcv_errors": "packets with errors arrive: check the cable, and the links behind the switch",
    "port_xmit_discards": "the fabric does not take the port's packets: look for congestion and for a slow receiver",
    "port_xmit_wait": "the port waits for the fabric: look for congestion",
}


class _Limit(NamedTuple):
    threshold: Threshold
    recovery: float

    @property
    def most_in_recovery(self) -> float:
        """The events within `recovery` seconds with which an excess is over: half of the threshold's rate."""
        return self.threshold.events * self.recovery / self.threshold.seconds / 2


class PortState(NamedTuple):
    """Whether a rail's port could count errors of a link in use.

    `active_since` is the second since when it is ACTIVE, None if it is not; `incident` says that the condition speaks of a loss.
    """

    active_since: float | None
    incident: bool = False


class PortReading(NamedTuple):
    """A reading of one rail's port; `identity` is another one when another card is in the slot. Counters are by `ports/<number>/counters/<name>`."""

    identity: Hashable
    device: str
    counters: Mapping[str, int]


class Span(NamedTuple):
    """The events between two seconds."""

    begin: float
    end: float
    events: int


class Excess(NamedTuple):
    """More events than a threshold has, which were `events` at `since`."""

    since: Moment
    events: int
    threshold: Threshold


@dataclass(frozen=True, slots=True)
class CounterHistory:
    """What was seen of one counter: its value at the second `read`, and what it moved before.

    Attributes:
        spans: what it moved, oldest first.
        unproved: what it moved last. It counts when the next reading finds the port ACTIVE without a pause: errors just before a loss are the loss.
        moved: the second of the reading that found it moved last.
        excess: None while it is not too much.
        saturated: whether the counter has its largest value, so that it is not known what it would move.
    """

    value: int
    read: float
    spans: tuple[Span, ...] = ()
    unproved: Span | None = None
    moved: float = 0.0
    excess: Excess | None = None
    saturated: bool = False


@dataclass(frozen=True, slots=True)
class PortHistory:
    """What was seen of one rail's port, by counter."""

    identity: Hashable
    device: str
    counters: Mapping[str, CounterHistory] = field(default_factory=dict)


def judged(
    before: PortHistory | None, reading: PortReading | None, state: PortState, thresholds: PortThresholds, now: Moment
) -> PortHistory | None:
    """Return the history after one more reading of a port; None for `reading` if the card did not answer.

    What cannot be read is not known: an excess stays, and a counter begins anew after an hour. Of a card with planes the state is
    ACTIVE while one of them is, so what a port counts around a loss of its own is told by its readings.
    """
    if reading is None:
        return before and replace(before, counters=_known(before.counters, now))
    if before is None or before.identity != reading.identity:
        before = PortHistory(reading.identity, reading.device)
    counters = _known(before.counters, now)
    absent, lost = _absent_ports(counters), _ports_that_were_lost(counters, reading)
    for key, value in reading.counters.items():
        port, counter = key.split("/")[1], key.rpartition("/")[2]
        threshold = thresholds.of(counter)
        if threshold is None:
            continue
        known = counters.get(key)
        if known is not None and (port in absent or (port in lost and counter != _OF_LOSSES)):
            known = replace(known, value=value, read=now.seconds, unproved=None)  # what it moved meanwhile is the loss
        counters[key] = _judged(known, key, value, state, _Limit(threshold, thresholds.recovery), now)
    return PortHistory(reading.identity, reading.device, counters)


def errors(history: PortHistory) -> Iterator[RailError]:
    """Yield what the condition says of a port's counters. The words stay the same while an excess lasts."""
    for key, counter in sorted(history.counters.items()):
        excess = counter.excess
        if excess is None:
            continue
        port, name = key.split("/")[1], key.rpartition("/")[2]
        full = (
            ""
            if not counter.saturated
            else "; the counter is full and shows no more of them: reset it when that is done (perfquery -R)"
        )
        yield RailError(
            reason=REASON,
            name=name,
            severe=name not in _OF_THE_FABRIC,
            text=f"port {port} of {history.device} counts too many {name} since {time_text(excess.since)} ({excess.events}, "
            f"allowed are {excess.threshold}): {_OF_THE_FABRIC.get(name, _LINK)}{full}",
        )


def _known(counters: Mapping[str, CounterHistory], now: Moment) -> dict[str, CounterHistory]:
    return {key: counter for key, counter in counters.items() if now.seconds - counter.read <= _UNREAD_SECONDS}


def _absent_ports(counters: Mapping[str, CounterHistory]) -> frozenset[str]:
    """Return the ports that had no reading when other ports of the device had: a plane whose link is lost."""
    last: dict[str, float] = {}
    for key, counter in counters.items():
        port = key.split("/")[1]
        last[port] = max(counter.read, last.get(port, counter.read))
    newest = max(last.values(), default=0.0)
    return frozenset(port for port, read in last.items() if read < newest)


def _ports_that_were_lost(counters: Mapping[str, CounterHistory], reading: PortReading) -> frozenset[str]:
    """Return the ports that count another loss of their link since the reading before."""
    return frozenset(
        key.split("/")[1]
        for key, value in reading.counters.items()
        if key.endswith(f"/{_OF_LOSSES}") and key in counters and value > counters[key].value
    )


def _judged(
    before: CounterHistory | None, key: str, value: int, state: PortState, limit: _Limit, now: Moment
) -> CounterHistory:
    full = is_saturated(key.split("/", 2)[2], value)
    if before is None:
        return CounterHistory(value, now.seconds, saturated=full)
    if value < before.value:  # reset by hand, or the driver was loaded anew: what it moved meanwhile is not known
        after = replace(before, value=value, read=now.seconds, unproved=None, saturated=full)
    else:
        moved = Span(before.read, now.seconds, value - before.value)
        known = replace(before, value=value, read=now.seconds, saturated=full)
        after = _moved(replace(known, moved=now.seconds) if moved.events else known, key, moved, state)
    return _with_excess(_without_old(after, limit, now), state, limit, now)


def _moved(counter: CounterHistory, key: str, moved: Span, state: PortState) -> CounterHistory:
    if key.endswith(f"/{_OF_LOSSES}"):
        of_incident = state.incident or moved.end - moved.begin > _LONGEST_OF_LOSSES
        return counter if of_incident else replace(counter, spans=_joined(counter.spans, moved))
    if state.active_since is None or state.active_since > moved.begin:
        return replace(counter, unproved=None)
    spans = counter.spans if counter.unproved is None else _joined(counter.spans, counter.unproved)
    return replace(counter, spans=spans, unproved=moved)


def _joined(spans: tuple[Span, ...], more: Span) -> tuple[Span, ...]:
    return (*spans, more) if more.events else spans


def _without_old(counter: CounterHistory, limit: _Limit, now: Moment) -> CounterHistory:
    kept_since = now.seconds - max(limit.threshold.seconds, limit.recovery)
    if counter.unproved is not None:
        kept_since -= now.seconds - counter.unproved.begin
    spans = [span for span in counter.spans if span.end > kept_since]
    while len(spans) > _MOST_SPANS:  # the two that are nearest to each other become one
        gaps = [after.end - first.begin for first, after in itertools.pairwise(spans)]
        at = gaps.index(min(gaps))
        first, after = spans[at : at + 2]
        spans[at : at + 2] = [Span(first.begin, after.end, first.events + after.events)]
    return replace(counter, spans=tuple(spans))


def _with_excess(counter: CounterHistory, state: PortState, limit: _Limit, now: Moment) -> CounterHistory:
    threshold, excess = limit.threshold, counter.excess
    proved = now.seconds if counter.unproved is None else counter.unproved.begin
    if excess is None:
        events = _within(counter.spans, proved - threshold.seconds)
        if events <= threshold.events:
            return counter
        return replace(counter, excess=Excess(now, int(events), threshold))
    # What a full counter would move is not known, as of a card that does not answer: an hour later there is nothing against the port. A
    # link that was trained anew is another cable, or another try with the same one.
    retrained = state.active_since is not None and state.active_since > excess.since.seconds
    begin = state.active_since if retrained and state.active_since is not None else excess.since.seconds
    unknown = counter.saturated and not retrained and now.seconds - counter.moved < _UNREAD_SECONDS
    lasts = unknown or now.seconds - begin < limit.recovery
    if lasts or _within(counter.spans, proved - limit.recovery) > limit.most_in_recovery:
        return counter
    return replace(counter, spans=(), unproved=None, excess=None)


def _within(spans: Iterable[Span], begin: float) -> float:
    """Return the events after a second; those of a longer span are taken as spread evenly over it: a reading may have hung."""
    return sum(
        span.events * min(1.0, (span.end - begin) / (span.end - span.begin))
        for span in spans
        if span.end > begin and span.end > span.begin
    )
