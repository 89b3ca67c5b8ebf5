"""The report of one run, as text and as JSON. Pure."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import zip_longest
from statistics import median
from typing import Any, NamedTuple

from railnet import VERSION
from railnet.cli.colour import Colour, Words
from railnet.cli.table import Column, aligned
from railnet.validate.all_reduce.rail_all_reduce import RailAllReduce, all_reduce_as_json, all_reduce_lines
from railnet.validate.findings.judgement import RailLimits, usual
from railnet.validate.findings.rail_finding import RailFinding, shown_gbits
from railnet.validate.findings.rail_rdma import rdma_as_json, rdma_of, rdma_words
from railnet.validate.findings.rail_reach import RailReach, reach_lines
from railnet.validate.findings.speed_judgement import FINDING, WARNING, Unjudged
from railnet.validate.json_report_version import FORMAT
from railnet.validate.mode import Mode
from railnet.validate.node_try import NodeTry
from railnet.validate.probe.measured import Measured
from railnet.validate.probe.probe_pod_state import PodRail
from railnet.validate.reports.run_description import RunDescription, run_as_json

WORDS = Words({"cut": Colour.RED, "fail": Colour.RED, "?": Colour.YELLOW, "no findings": Colour.GREEN})
Shown = Callable[[Measured | None], str]
_LARGEST_MATRIX = 12  # nodes, whose columns fit into a line
_SLOWEST = 10  # pairs of a larger rail that are shown
LOOK_AT = "  look at: "
_REASONS = 4  # of what was not tried; each pair may have its own


class Report(NamedTuple):
    """All that a run has found.

    Attributes:
        rails_of: the rails that each pod had, by node.
        measured: each pair of the plan.
        untested: what should have been tested and could not be, with the reason.
        gpu: whether RDMA was tried with a GPU's memory.
        warnings: what may be wrong: a rail that is slower than it should be, and faster than half of that.
        unjudged: the speeds that were measured and could not be judged, with the reason.
        mode: how thorough the run was.
        uncompared: which nodes are in this run or in the baseline alone.
        about: which run it is.
        reach: whether each two rails reach each other.
        all_reduces: the all-reduce over each rail; empty if none was asked for.
        tries: what became of the pod on each node.
    """

    rails_of: dict[str, tuple[PodRail, ...]]
    measured: tuple[Measured, ...]
    findings: tuple[RailFinding, ...]
    untested: tuple[str, ...]
    limits: RailLimits
    gpu: bool = False
    warnings: tuple[RailFinding, ...] = ()
    unjudged: tuple[Unjudged, ...] = ()
    mode: Mode = Mode.FULL
    uncompared: tuple[str, ...] = ()
    about: RunDescription = RunDescription()
    reach: tuple[RailReach, ...] = ()
    all_reduces: tuple[RailAllReduce, ...] = ()
    tries: tuple[NodeTry, ...] = ()

    @property
    def rails(self) -> list[int]:
        """The numbers of the rails that were measured."""
        return sorted({measurement.pair.rail for measurement in self.measured})

    def of_rail(self, rail: int) -> list[Measured]:
        """Return the measurements of a rail."""
        return [measurement for measurement in self.measured if measurement.pair.rail == rail]


def not_tried(report: Report) -> str:
    """Return the last line: the optional tests that were not made; empty if all were made."""
    if not report.mode.tries_rdma:
        return f"not tried: RDMA and GPUDirect (--mode {report.mode})"
    parts = [*untried_tools(report.measured)[:_REASONS], *(() if report.gpu else ("GPUDirect",))]
    return f"not tried: {'; '.join(parts)}" if parts else ""


def untried_tools(measured: Sequence[Measured]) -> list[str]:
    """Return which tools for RDMA could not be tried, by the reason."""
    tools: dict[str, list[str]] = {}
    for tool, why in dict.fromkeys(each for measurement in measured for each in measurement.rdma.untried):
        tools.setdefault(why, []).append(tool)
    return [f"{', '.join(names)}: {why}" for why, names in tools.items()]


def nodes_of(measured: Sequence[Measured]) -> list[str]:
    """Return the nodes of measurements, by name."""
    return sorted({node for measurement in measured for node in (measurement.pair.server, measurement.pair.client)})


def by_nodes(measured: Sequence[Measured]) -> dict[frozenset[str], Measured]:
    """Return the measurements of one rail by their two nodes."""
    return {frozenset((measurement.pair.server, measurement.pair.client)): measurement for measurement in measured}


def headline(report: Report) -> str:
    """Return the first line."""
    count = len(report.findings)
    counts = (
        (count, f"finding{'' if count == 1 else 's'}"),
        (len(report.warnings), f"warning{'' if len(report.warnings) == 1 else 's'}"),
        (len(report.untested), "not tested"),
        (len(report.unjudged), f"speed{'' if len(report.unjudged) == 1 else 's'} not judged"),
    )
    parts = [f"{number} {words}" for number, words in counts if number]
    if not count and not report.unjudged:  # "no findings" would speak of speeds that were not judged
        parts.insert(0, "no findings")
    pairs = f"{len(report.measured)} pair{'' if len(report.measured) == 1 else 's'}"
    nodes = len(nodes_of(report.measured))
    return f"railnet {VERSION}: {pairs} on {len(report.rails)} rail{'' if len(report.rails) == 1 else 's'} of {nodes} nodes: {', '.join(parts)}"


def summary(measured: Sequence[Measured]) -> str:
    """Return what is usual of a rail: its largest packet, and the medians of its round trips and of RDMA's latencies."""
    trips = [measurement.round_trip_us for measurement in measured if measurement.round_trip_us is not None]
    mtus = [measurement.mtu for measurement in measured if measurement.mtu is not None]
    if not trips or not mtus:
        return "nothing measured"
    latencies = [measurement.rdma.latency_us for measurement in measured if measurement.rdma.latency_us is not None]
    rdma = f", latency of RDMA {median(latencies):.2f} us" if latencies else ""
    return f"largest packet {usual(mtus)} bytes, round trip {median(trips):.0f} us{rdma}"


def rail_line(report: Report, rail: int) -> str:
    """Return what the line above a rail's matrix says: what is usual of it, what became of RDMA, and which pairs the plan has."""
    measured = report.of_rail(rail)
    parts = (summary(measured), rdma_words(rdma_of(measured, report.mode)), coverage(measured, report.mode))
    return "; ".join(filter(None, parts))


def coverage(measured: Sequence[Measured], mode: Mode = Mode.FULL) -> str:
    """Return how many of a rail's pairs the plan has, if not all; empty otherwise."""
    count = len(nodes_of(measured))
    every = count * (count - 1) // 2
    which = "a ring" if mode.ring_only else "a ring, and random pairs"
    return "" if len(measured) == every else f"{len(measured)} of {every} pairs: {which}"


def cell(measurement: Measured | None) -> str:
    """Return what a matrix shows of a pair: Gbit/s, `cut`, `?` if the probe could not run, and `.` for no pair of the plan."""
    if measurement is None:
        return "."
    if measurement.untried:
        return "?"
    return "cut" if measurement.failed or measurement.gbits is None else shown_gbits(measurement.gbits)


def rdma_cell(measurement: Measured | None) -> str:
    """Return what a matrix of RDMA shows of a pair, as `cell`; `fail` if a tool has failed."""
    if measurement is None or measurement.untried or measurement.failed:
        return cell(measurement)
    if measurement.rdma.gbits is not None:
        return shown_gbits(measurement.rdma.gbits)
    return "fail" if measurement.rdma.failed else "?"


def has_rdma(measured: Sequence[Measured]) -> bool:
    """Return whether RDMA was tried between any pair, so that there is a matrix of it."""
    return any(measurement.rdma.gbits is not None or measurement.rdma.failed for measurement in measured)


def lists(report: Report) -> tuple[tuple[str, Sequence[str]], ...]:
    """Return what a person reads below the matrices: each list with its title."""
    return (
        ("findings", list(_told(report.findings))),
        ("warnings", list(_told(report.warnings))),
        ("not tested", report.untested),
        ("not judged", [unjudged.text for unjudged in report.unjudged]),
        ("not compared", report.uncompared),
        ("between rails", list(reach_lines(report.reach))),
    )


def _told(findings: Sequence[RailFinding]) -> Iterator[str]:
    """Yield each finding, and after the last of several that have the same advice what to look at."""
    for finding, following in zip_longest(findings, findings[1:]):
        yield finding.text
        if following is None or following.look != finding.look:
            yield f"{LOOK_AT}{finding.look}"


def facts(report: Report) -> list[tuple[str, str]]:
    """Return the name and the value of what a reader must know of a run, for a page that is read later."""
    about, limits = report.about, report.limits
    bounds = (
        ("at least {:g} Gbit/s by TCP", limits.least_gbits),
        ("at most {:g} us for a round trip", limits.most_microseconds),
        ("at least {:g} Gbit/s by RDMA", limits.least_rdma_gbits),
        ("at most {:g} us for RDMA", limits.most_rdma_microseconds),
        ("at least {:g} Gbit/s of bus bandwidth by an all-reduce", limits.least_busbw_gbits),
    )
    given = [words.format(bound) for words, bound in bounds if bound is not None]
    unlimited = [
        name for name, bound in (("TCP", limits.least_gbits), ("RDMA", limits.least_rdma_gbits)) if bound is None
    ]
    relative = f"{' and '.join(unlimited)}: below {FINDING:.0%} of the median a finding, below {WARNING:.0%} {_second(report.mode)}"
    told = (
        ("date", about.started and f"{about.started}, {about.seconds:.0f} s"),
        ("cluster", about.server),
        ("context", about.context),
        ("namespace", about.namespace),
        ("image", about.image),
        ("image of the all-reduce", about.all_reduce_image),
        ("mode", f"{report.mode}, {about.measured_seconds:g} s for each bandwidth"),
        ("limits", "; ".join([*given, *([relative] if unlimited else [])])),
        ("compared with", about.baseline),
        ("Railnet", VERSION),
    )
    return [(name, value) for name, value in told if value]


def _second(mode: Mode) -> str:
    return "a warning" if mode.permits_warnings else "a finding, too"


def rendered(report: Report, *, wide: bool = False) -> Iterator[str]:
    """Yield the lines for a person; `wide` shows all pairs of a large rail, and not the slowest ones alone."""
    yield headline(report)
    for rail in report.rails:
        measured = report.of_rail(rail)
        yield ""
        yield f"rail {rail}: {rail_line(report, rail)}"
        table = (
            _matrix if len(nodes_of(measured)) <= _LARGEST_MATRIX else partial(_list, most=None if wide else _SLOWEST)
        )
        if has_rdma(measured):
            yield from table(measured, "TCP Gbit/s", cell)
            yield ""
            yield from table(measured, "RDMA Gbit/s", rdma_cell)
        else:
            yield from table(measured, "Gbit/s", cell)
        for all_reduce in report.all_reduces:
            if all_reduce.rail == rail:
                yield from all_reduce_lines(all_reduce, wide=wide)
    for title, lines in lists(report):
        if lines:
            yield from ("", f"{title}:", *(f"  {line}" for line in lines))
    if last := not_tried(report):
        yield from ("", last)


def as_json(report: Report) -> dict[str, Any]:
    """Return the report for programs."""
    return {
        "version": VERSION,
        "format": FORMAT,
        "run": run_as_json(report.about),
        "mode": str(report.mode),
        "limits": report.limits._asdict(),
        "nodes": {node: [rail._asdict() for rail in rails] for node, rails in sorted(report.rails_of.items())},
        "rails": [
            {"rail": rail, "rdma": rdma_as_json(rdma_of(report.of_rail(rail), report.mode))} for rail in report.rails
        ],
        "pairs": [{**measurement.pair._asdict(), **_numbers(measurement)} for measurement in report.measured],
        "findings": [_finding(finding) for finding in report.findings],
        "warnings": [_finding(finding) for finding in report.warnings],
        "untested": list(report.untested),
        "unjudged": [unjudged.text for unjudged in report.unjudged],
        "uncompared": list(report.uncompared),
        "reach": [
            {"rails": [each.rail, each.other], "reached": each.reached, "why": each.why or None}
            for each in report.reach
        ],
        "allReduce": [all_reduce_as_json(all_reduce) for all_reduce in report.all_reduces],
        "notTried": not_tried(report) or None,
    }


def _finding(finding: RailFinding) -> dict[str, Any]:
    kind, rail, nodes, text, speed, _ = finding
    return {"kind": kind, "rail": rail, "nodes": nodes, "text": text, "speed": speed or None, "look": finding.look}


def _numbers(measurement: Measured) -> dict[str, Any]:
    return {
        "roundTripMicroseconds": None if measurement.round_trip_us is None else round(measurement.round_trip_us, 1),
        "mtu": measurement.mtu,
        "portGbits": list(measurement.port_gbits),
        "gbits": None if measurement.gbits is None else round(measurement.gbits, 3),
        "failed": measurement.failed or None,
        "untried": measurement.untried or None,
        "rdma": {
            "gbits": measurement.rdma.gbits,
            "latencyMicroseconds": measurement.rdma.latency_us,
            "failed": measurement.rdma.failed or None,
            "untried": dict(measurement.rdma.untried),
        },
    }


def _matrix(measured: Sequence[Measured], title: str, shown: Shown) -> Iterator[str]:
    nodes, measurements = nodes_of(measured), by_nodes(measured)
    columns = (Column(title), *(Column(str(number), number=True) for number, _ in enumerate(nodes, 1)))
    rows = []
    for number, node in enumerate(nodes, 1):
        cells = ["-" if other == node else shown(measurements.get(frozenset((node, other)))) for other in nodes]
        rows.append((f"{number} {node}", *cells))
    yield from aligned(columns, rows)


def _list(measured: Sequence[Measured], title: str, shown: Shown, *, most: int | None) -> Iterator[str]:
    def speed(measurement: Measured) -> float:
        gbits = measurement.gbits if shown is cell else measurement.rdma.gbits
        return -1.0 if gbits is None else gbits

    slowest = sorted(measured, key=speed)[:most]
    columns = (Column("NODE"), Column("NODE"), Column(title, number=True))
    if most is not None:
        yield f"the {len(slowest)} slowest pairs (all are in -o wide, -o json and --html):"
    yield from aligned(
        columns, [(measurement.pair.server, measurement.pair.client, shown(measurement)) for measurement in slowest]
    )
