"""What the condition `RailnetValidated` says of each node that a run has tried, or could not try. Pure."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import NamedTuple

from railnet.validate.node_try import NodeTry
from railnet.validate.rail_finding import RailFinding, nodes_of_pair
from railnet.validate.report import Report

TYPE = "RailnetValidated"
FINDINGS, NO_FINDINGS, NOT_TRIED = "Findings", "NoFindings", "NotTried"
_MOST_TEXTS, _LONGEST_TEXT = 4, 240  # of a condition; it is sent to each program that watches nodes


class NodeVerdict(NamedTuple):
    """A condition's content: `status` is True without findings, False with some, and Unknown if the node was not tried."""

    status: str
    reason: str
    message: str


def verdicts(report: Report, moment: datetime) -> dict[str, NodeVerdict]:
    """Return the verdict on each node that was tried, or could not be; of a node that gave way to a job nothing new is known."""
    return {
        node_try.node: verdict
        for node_try in sorted(report.tries)
        if not node_try.gone and (verdict := _of_node(node_try, report, moment)) is not None
    }


def is_tried(report: Report, of_nodes: Mapping[str, NodeVerdict]) -> bool:
    """Return whether each pod has started, and at least one node was tried, unless all of them gave way to jobs."""
    gone = {node_try.node for node_try in report.tries if node_try.gone}
    unstarted = {node_try.node for node_try in report.tries if node_try.unstarted}
    return unstarted <= gone and (bool(gone) or any(verdict.status != "Unknown" for verdict in of_nodes.values()))


def _of_node(node_try: NodeTry, report: Report, moment: datetime) -> NodeVerdict | None:
    """Return the verdict on a node; None if it could be tried, and there was no other node to try it with."""
    pairs = [measurement for measurement in report.measured if node_try.node in nodes_of_pair(measurement)]
    if rails := {measurement.pair.rail for measurement in pairs if not measurement.untried}:
        return _verdict(node_try.node, rails, report, moment)
    gone = {other.node for other in report.tries if other.gone}
    with_others = [pair for pair in pairs if not gone & {*nodes_of_pair(pair)}]
    why = [node_try.unstarted] if node_try.unstarted else list(dict.fromkeys(pair.untried for pair in with_others))
    if not why:
        return None
    run = f"railnet validate on {moment.date().isoformat()}"
    return NodeVerdict("Unknown", NOT_TRIED, f"{run} tried no rail: {_joined(why)}")


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
