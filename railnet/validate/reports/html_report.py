"""The report as one HTML file, which needs nothing from elsewhere. Pure."""

from collections.abc import Iterator, Sequence
from html import escape

from railnet.validate.all_reduce.judgement import KIND
from railnet.validate.all_reduce.rail_all_reduce import RailAllReduce, all_reduce_lines, size_row
from railnet.validate.findings.rail_finding import RailFinding
from railnet.validate.findings.speed_judgement import RDMA, TCP, Speed
from railnet.validate.probe.measured import Measured
from railnet.validate.reports.report import (
    LOOK_AT,
    Report,
    Shown,
    by_nodes,
    cell,
    facts,
    has_rdma,
    headline,
    lists,
    nodes_of,
    not_tried,
    rail_line,
    rdma_cell,
    untried_tools,
)

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 78rem; padding: 0 1rem; color: #1b1f24; background: #fff }
h1 { font-size: 1.35rem } h2 { font-size: 1.1rem; margin-top: 2rem } .quiet { color: #57606a }
.wide { overflow-x: auto; margin-bottom: .8rem } table { border-collapse: collapse; font-variant-numeric: tabular-nums }
th, td { padding: .25rem .55rem; border: 1px solid #d0d7de; text-align: right } tbody th { text-align: left; font-weight: 500 }
.good { background: #dafbe1 } td.bad, b.bad { background: #ffd8d3 } td.bad { font-weight: 600 } .doubtful { background: #ffe3b8 } .unknown { background: #fff3c4 }
.none { color: #8c959f } .facts th, .facts td { text-align: left; border: 0; padding: .1rem .8rem .1rem 0 } b { padding: 0 .4rem; font-weight: 500 }
li.bad { color: #a40e26 } li.doubtful { color: #7d4e00; background: none }
"""
_LEGEND = (
    ("good", "90.0", "the bandwidth of a pair in Gbit/s, with no finding and no warning"),
    ("doubtful", "60.0", "a warning is about this pair, its node or its rail"),
    ("bad", "9.0", "a finding is about it"),
    ("bad", "cut", "no connection, or it was lost"),
    ("bad", "fail", "a tool for RDMA has failed where TCP has not"),
    ("unknown", "?", "not tested"),
    ("none", "&middot;", "no pair of the plan"),
)
_KINDS = {"findings": "bad", "warnings": "doubtful"}


def html(report: Report) -> str:
    """Return the whole file."""
    return "\n".join(
        (
            '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>railnet validate</title>',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<style>{_STYLE}</style></head><body>",
            f"<h1>{escape(headline(report))}</h1>",
            *_facts(report),
            *(
                line
                for title, lines in lists(report)
                for line in _list(title.capitalize(), lines, _KINDS.get(title, ""))
            ),
            *(line for rail in report.rails for line in _rail(report, rail)),
            *_legend(report),
            f'<p class="quiet">{escape(not_tried(report))}</p></body></html>',
            "",
        )
    )


def _facts(report: Report) -> Iterator[str]:
    """Yield which run the page is of, and by what it was judged."""
    yield '<table class="facts"><tbody>'
    for name, value in facts(report):
        yield f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>"
    yield "</tbody></table>"


def _legend(report: Report) -> Iterator[str]:
    if report.measured:
        yield "<h2>Legend</h2><ul>"
        yield from (f'<li><b class="{kind}">{mark}</b> {words}</li>' for kind, mark, words in _LEGEND)
        yield "</ul>"


def _list(title: str, lines: Sequence[str], kind: str) -> Iterator[str]:
    if lines:
        yield f"<h2>{title}</h2><ul>"
        for line in lines:
            yield f'<li class="{"quiet" if line.startswith(LOOK_AT) else kind}">{escape(line.strip())}</li>'
        yield "</ul>"


def _rail(report: Report, rail: int) -> Iterator[str]:
    measured = report.of_rail(rail)
    wrong = [finding for finding in report.findings if finding.rail == rail and finding.kind != KIND]
    doubtful = [finding for finding in report.warnings if finding.rail == rail and finding.kind != KIND]
    yield f"<h2>Rail {rail}</h2>"
    yield f'<p class="quiet">{escape(rail_line(report, rail))}.</p>'
    yield from _matrix(measured, "TCP, Gbit/s", cell, _but(RDMA, wrong), _but(RDMA, doubtful))
    if has_rdma(measured):
        yield from _matrix(measured, "RDMA, Gbit/s", rdma_cell, _but(TCP, wrong), _but(TCP, doubtful))
    for all_reduce in report.all_reduces:
        if all_reduce.rail == rail:
            yield from _all_reduce(all_reduce)


def _all_reduce(all_reduce: RailAllReduce) -> Iterator[str]:
    """Yield its line, and its sizes with the words of nccl-tests."""
    yield from (f"<p>{escape(line)}</p>" for line in all_reduce_lines(all_reduce))
    if all_reduce.speeds:
        heads = ("size", "us", "algbw, Gbit/s", "busbw, Gbit/s")
        yield f'<div class="wide"><table><thead><tr>{"".join(f"<th>{head}</th>" for head in heads)}</tr></thead><tbody>'
        for speed in all_reduce.speeds:
            yield f"<tr>{''.join(f'<td>{escape(text)}</td>' for text in size_row(speed))}</tr>"
        yield "</tbody></table></div>"


def _but(speed: Speed, findings: list[RailFinding]) -> list[RailFinding]:
    """Return the findings that are not of a speed alone, which has a matrix of its own."""
    return [finding for finding in findings if finding.speed != speed.name]


def _matrix(
    measured: list[Measured], title: str, shown: Shown, wrong: list[RailFinding], doubtful: list[RailFinding]
) -> Iterator[str]:
    nodes, measurements = nodes_of(measured), by_nodes(measured)
    yield f'<div class="wide"><table><thead><tr><th>{title}</th>'
    yield (
        "".join(f'<th title="{escape(node)}">{number}</th>' for number, node in enumerate(nodes, 1))
        + "</tr></thead><tbody>"
    )
    for number, node in enumerate(nodes, 1):
        cells = (
            _cell(measurements.get(frozenset((node, other))), node == other, shown, wrong, doubtful) for other in nodes
        )
        yield f"<tr><th>{number} {escape(node)}</th>{''.join(cells)}</tr>"
    yield "</tbody></table></div>"


def _cell(
    measurement: Measured | None, itself: bool, shown: Shown, wrong: list[RailFinding], doubtful: list[RailFinding]
) -> str:
    if itself or measurement is None:
        return f'<td class="none">{"&ndash;" if itself else "&middot;"}</td>'
    text = shown(measurement)
    nodes = {measurement.pair.server, measurement.pair.client}
    if text == "?":
        kind = "unknown"
    elif any(nodes.issuperset(finding.nodes) for finding in wrong):
        kind = "bad"
    else:
        kind = "doubtful" if any(nodes.issuperset(finding.nodes) for finding in doubtful) else "good"
    return f'<td class="{kind}" title="{escape(_details(measurement))}">{escape(text)}</td>'


def _details(measurement: Measured) -> str:
    numbers = (
        "" if measurement.round_trip_us is None else f"round trip {measurement.round_trip_us:.0f} us",
        "" if measurement.mtu is None else f"largest packet {measurement.mtu} bytes",
        "" if measurement.rdma.latency_us is None else f"latency of RDMA {measurement.rdma.latency_us:.2f} us",
    )
    words = (measurement.failed, measurement.untried, measurement.rdma.failed, *untried_tools([measurement]))
    return "; ".join(filter(None, (f"{measurement.pair.server} and {measurement.pair.client}", *numbers, *words)))
