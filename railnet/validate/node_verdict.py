"""What the condition `RailnetValidated` says of each node that a run has tried. Pure."""

from collections.abc import Iterator
from datetime import datetime
from typing import NamedTuple

from railnet.validate.rail_finding import RailFinding, nodes_of_pair
from railnet.validate.report import Report

TYPE = "RailnetValidated"
FINDINGS, NO_FINDINGS = "Findings", "NoFindings"
_MOST_TEXTS, _LONGEST_TEXT = 4, 240  # of a condition; it is sent to each program that watches nodes


class NodeVerdict(NamedTuple):
    """A condition's content: `status` is True without findings, and False with some."""

    status: str
    reason: str
    message: str


def verdicts(report: Report, moment: datetime) -> dict[str, NodeVerdict]:
    """Return the verdict on each node of which a pair was measured; of the others nothing new is known."""
    places: dict[str, set[int]] = {}
    for measurement in report.measured:
        if not measurement.untried:
            for node in nodes_of_pair(measurement):
                places.setdefault(node, set()).add(measurement.pair.rail)
    return {node: _verdict(node, rails, report, moment) for node, rails in sorted(places.items())}


def _verdict(node: str, rails: set[int], report: Report, moment: datetime) -> NodeVerdict:
    findings, warnings = (
        [finding.text for finding in each if _is_about(finding, node, rails)]
        for each in (report.findings, report.warnings)
    )
    date = moment.date().isoformat()
    if findings:
        return NodeVerdict("False", FINDINGS, f"railnet validate on {date}: {_joined(findings)}")
    tried = f"railnet validate on {date} tried {len(rails)} {'rail' if len(rails) == 1 else 'rails'}: no findings"
    more = [*(f"warning: {text}" for text in warnings), *_unjudged(report, rails)]
    return NodeVerdict("True", NO_FINDINGS, f"{tried}; {_joined(more)}" if more else tried)


def _is_about(finding: RailFinding, node: str, rails: set[int]) -> bool:
    """Return whether a finding is about a node: about its rail, about a pair of which it is one, or about a whole rail that it has."""
    return finding.rail in rails and (not finding.nodes or node in finding.nodes)


def _unjudged(report: Report, rails: set[int]) -> Iterator[str]:
    speeds = sorted({f"rail {each.rail} by {each.speed.name}" for each in report.unjudged if each.rail in rails})
    if speeds:
        yield f"speed not judged: {', '.join(speeds)}"


def _joined(texts: list[str]) -> str:
    more = [f"{len(texts) - _MOST_TEXTS} more"] if len(texts) > _MOST_TEXTS else []
    return "; ".join([*(text[:_LONGEST_TEXT] for text in texts[:_MOST_TEXTS]), *more])
