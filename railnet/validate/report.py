"""The report of one run, as text and as JSON. Pure."""

from collections.abc import Iterator, Sequence
from statistics import median
from typing import Any, NamedTuple

from railnet import VERSION
from railnet.status.text_table import Column, aligned
from railnet.validate.judgement import Finding, Limits, usual
from railnet.validate.measured import Measured
from railnet.validate.probe_pods import PodRail

NOT_TRIED = "not tried by this version: ib_write_bw, ib_write_lat, rping, GPUDirect, addresses of IPv6"
_LARGEST_MATRIX = 12  # nodes, whose columns fit into a line
_SLOWEST = 10  # pairs of a larger rail that are shown


class Report(NamedTuple):
    """All that a run has found.

    Attributes:
        rails_of: the rails that each pod had, by node.
        measured: each pair of the plan.
        untested: what should have been tested and could not be, with the reason.
    """

    rails_of: dict[str, tuple[PodRail, ...]]
    measured: tuple[Measured, ...]
    findings: tuple[Finding, ...]
    untested: tuple[str, ...]
    limits: Limits

    @property
    def rails(self) -> list[int]:
        """The numbers of the rails that were measured."""
        return sorted({one.pair.rail for one in self.measured})

    def of_rail(self, rail: int) -> list[Measured]:
        """Return the measurements of a rail."""
        return [one for one in self.measured if one.pair.rail == rail]


def nodes_of(measured: Sequence[Measured]) -> list[str]:
    """Return the nodes of measurements, by name."""
    return sorted({node for one in measured for node in (one.pair.server, one.pair.client)})


def by_nodes(measured: Sequence[Measured]) -> dict[frozenset[str], Measured]:
    """Return the measurements of one rail by their two nodes."""
    return {frozenset((one.pair.server, one.pair.client)): one for one in measured}


def headline(report: Report) -> str:
    """Return the first line."""
    count = len(report.findings)
    found = f"{count or 'no'} finding{'' if count == 1 else 's'}"
    untested = f", {len(report.untested)} not tested" if report.untested else ""
    pairs = f"{len(report.measured)} pair{'' if len(report.measured) == 1 else 's'}"
    nodes = len(nodes_of(report.measured))
    return f"railnet {VERSION}: {pairs} on {len(report.rails)} rail{'' if len(report.rails) == 1 else 's'} of {nodes} nodes: {found}{untested}"


def summary(measured: Sequence[Measured]) -> str:
    """Return what is usual of a rail: its largest packet, and the median of its round trips."""
    trips = [one.round_trip_us for one in measured if one.round_trip_us is not None]
    mtus = [one.mtu for one in measured if one.mtu is not None]
    if not trips or not mtus:
        return "nothing measured"
    return f"largest packet {usual(mtus)} bytes, round trip {median(trips):.0f} us"


def coverage(measured: Sequence[Measured]) -> str:
    """Return how many of a rail's pairs the plan has, if not all; empty otherwise."""
    count = len(nodes_of(measured))
    every = count * (count - 1) // 2
    return "" if len(measured) == every else f"{len(measured)} of {every} pairs: a ring, and random pairs"


def cell(one: Measured | None) -> str:
    """Return what a matrix shows of a pair: Gbit/s, `cut`, `?` if the probe could not run, and `.` for no pair of the plan."""
    if one is None:
        return "."
    if one.untried:
        return "?"
    return "cut" if one.failed or one.gbits is None else f"{one.gbits:.1f}"


def rendered(report: Report) -> Iterator[str]:
    """Yield the lines for a person."""
    yield headline(report)
    for rail in report.rails:
        measured = report.of_rail(rail)
        yield ""
        yield f"rail {rail}: {'; '.join(filter(None, (summary(measured), coverage(measured))))}"
        yield from _matrix(measured) if len(nodes_of(measured)) <= _LARGEST_MATRIX else _list(measured)
    for title, lines in (("findings", [one.text for one in report.findings]), ("not tested", report.untested)):
        if lines:
            yield from ("", f"{title}:", *(f"  {line}" for line in lines))
    yield ""
    yield NOT_TRIED


def as_json(report: Report) -> dict[str, Any]:
    """Return the report for programs."""
    return {
        "version": VERSION,
        "limits": report.limits._asdict(),
        "nodes": {node: [rail._asdict() for rail in rails] for node, rails in sorted(report.rails_of.items())},
        "pairs": [{**one.pair._asdict(), **_numbers(one)} for one in report.measured],
        "findings": [one._asdict() for one in report.findings],
        "untested": list(report.untested),
        "notTried": NOT_TRIED,
    }


def _numbers(one: Measured) -> dict[str, Any]:
    return {
        "roundTripMicroseconds": None if one.round_trip_us is None else round(one.round_trip_us, 1),
        "mtu": one.mtu,
        "gbits": None if one.gbits is None else round(one.gbits, 3),
        "failed": one.failed or None,
        "untried": one.untried or None,
    }


def _matrix(measured: Sequence[Measured]) -> Iterator[str]:
    nodes, found = nodes_of(measured), by_nodes(measured)
    columns = (Column("Gbit/s"), *(Column(str(number), number=True) for number, _ in enumerate(nodes, 1)))
    rows = []
    for number, node in enumerate(nodes, 1):
        cells = ["-" if other == node else cell(found.get(frozenset((node, other)))) for other in nodes]
        rows.append((f"{number} {node}", *cells))
    yield from aligned(columns, rows)


def _list(measured: Sequence[Measured]) -> Iterator[str]:
    slowest = sorted(measured, key=lambda one: -1.0 if one.gbits is None else one.gbits)[:_SLOWEST]
    columns = (Column("NODE"), Column("NODE"), Column("Gbit/s", number=True))
    yield f"the {len(slowest)} slowest pairs (all are in --json and --html):"
    yield from aligned(columns, [(one.pair.server, one.pair.client, cell(one)) for one in slowest])
