"""What the condition `RailnetValidated` says of each node that a run has tried, or could not try. Pure."""

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import NamedTuple

from railnet.apiserver.node_status import NodeCondition
from railnet.cli.escapes import printable
from railnet.validate.findings.rail_finding import RailFinding, nodes_of_pair
from railnet.validate.node_try import NodeTry
from railnet.validate.reports.report import Report

TYPE = "RailnetValidated"
FINDINGS, NO_FINDINGS, NOT_TRIED, NOT_ALL_TRIED = "Findings", "NoFindings", "NotTried", "NotAllTried"
_WITH_FINDINGS = "rails with findings: "
_RAILS = re.compile(rf" \({_WITH_FINDINGS}(\d{{1,9}}(?:, \d{{1,9}})*)\)$", re.ASCII)
_MOST_TEXTS, _LONGEST_TEXT = 4, 240  # of a condition; it is sent to each program that watches nodes


class NodeVerdict(NamedTuple):
    """A condition's content: `status` is True without findings, False with some, and Unknown if rails of the node were not tried.

    `tried` are the rails that were tried.
    """

    status: str
    reason: str
    message: str
    tried: frozenset[int] = frozenset()


def verdicts(report: Report, moment: datetime) -> dict[str, NodeVerdict]:
    """Return the verdict on each node that was tried, or could not be; of a node that gave way to a job nothing new is known."""
    return {
        node_try.node: verdict
        for node_try in sorted(report.tries)
        if not node_try.gone and (verdict := _of_node(node_try, report, moment)) is not None
    }


def next_verdict(before: NodeCondition | None, verdict: NodeVerdict) -> NodeVerdict:
    """Return what a node says after a run: findings about rails that the run did not try are kept.

    A verdict without any finding, on other rails, says nothing about them. Which rails these are is written at the end of the message. A
    message without that end was changed by another program, and any run that has tried a rail replaces it.
    """
    if before is None or before.status != "False":
        return verdict
    rails = _rails_with_findings(before.message)
    if rails is None:
        return verdict if verdict.status != "Unknown" else _kept(before, verdict)
    if not (untried := rails - verdict.tried):
        return verdict
    if verdict.status != "False":
        return _kept(before, verdict)
    both = (_rails_with_findings(verdict.message) or set()) | untried
    text = _RAILS.sub("", verdict.message)
    return verdict._replace(message=f"{text}; {_numbered(untried)} not tried, with findings before {_at_end(both)}")


def is_tried(report: Report, of_nodes: Mapping[str, NodeVerdict]) -> bool:
    """Return whether each pod has started, and at least one node was tried, unless all of them gave way to jobs."""
    gone = {node_try.node for node_try in report.tries if node_try.gone}
    unstarted = {node_try.node for node_try in report.tries if node_try.unstarted}
    return unstarted <= gone and (bool(gone) or any(verdict.status != "Unknown" for verdict in of_nodes.values()))


def _of_node(node_try: NodeTry, report: Report, moment: datetime) -> NodeVerdict | None:
    """Return the verdict on a node; None if it could be tried, and there was no other node to try it with."""
    pairs = [measurement for measurement in report.measured if node_try.node in nodes_of_pair(measurement)]
    if rails := {measurement.pair.rail for measurement in pairs if not measurement.untried}:
        return _verdict(node_try, rails, report, moment)
    gone = {other.node for other in report.tries if other.gone}
    with_others = [pair for pair in pairs if not gone & {*nodes_of_pair(pair)}]
    why = [node_try.unstarted] if node_try.unstarted else list(dict.fromkeys(pair.untried for pair in with_others))
    if not why:
        return None
    run = f"railnet validate on {moment.date().isoformat()}"
    return NodeVerdict("Unknown", NOT_TRIED, f"{run} tried no rail: {_joined(why)}")


def _kept(before: NodeCondition, verdict: NodeVerdict) -> NodeVerdict:
    return NodeVerdict(before.status, before.reason, before.message, verdict.tried)


def _rails_with_findings(message: str) -> set[int] | None:
    """Read which rails a message has findings about; None if it does not say so."""
    at_end = _RAILS.search(message)
    return None if at_end is None else {int(number) for number in at_end[1].split(", ")}


def _at_end(rails: Iterable[int]) -> str:
    return f"({_WITH_FINDINGS}{', '.join(map(str, sorted(rails)))})"


def _numbered(rails: Iterable[int]) -> str:
    numbers = sorted(rails)
    return f"{'rail' if len(numbers) == 1 else 'rails'} {', '.join(map(str, numbers))}"


def _verdict(node_try: NodeTry, rails: set[int], report: Report, moment: datetime) -> NodeVerdict:
    findings, warnings = (
        [finding for finding in each if _is_about(finding, node_try.node, rails)]
        for each in (report.findings, report.warnings)
    )
    run = f"railnet validate on {moment.date().isoformat()}"
    untried = list(_untried(node_try, rails, report))
    if findings:
        told = _joined([finding.text for finding in findings] + untried)
        at_end = _at_end({finding.rail for finding in findings})
        return NodeVerdict("False", FINDINGS, f"{run}: {told} {at_end}", frozenset(rails))
    tried = f"{run} tried {len(rails)} {'rail' if len(rails) == 1 else 'rails'}: no findings"
    more = [*untried, *(f"warning: {warning.text}" for warning in warnings), *_unjudged(report, rails)]
    message = f"{tried}; {_joined(more)}" if more else tried
    if untried:
        return NodeVerdict("Unknown", NOT_ALL_TRIED, message, frozenset(rails))
    return NodeVerdict("True", NO_FINDINGS, message, frozenset(rails))


def _untried(node_try: NodeTry, rails: set[int], report: Report) -> Iterator[str]:
    """Yield which rails of a node's pod were not tried, in words, and that it had fewer rails than it has asked for VFs."""
    own = {rail.rail for rail in report.rails_of.get(node_try.node, ())}
    if own - rails:
        yield f"not tried: {_numbered(own - rails)}"
    if len(own) < node_try.vfs:
        yield f"{node_try.vfs} VFs were on {len(own)} {'rail' if len(own) == 1 else 'rails'}"


def _is_about(finding: RailFinding, node: str, rails: set[int]) -> bool:
    """Return whether a finding is about a node: about its rail, about a pair of which it is one, or about a whole rail that it has."""
    return finding.rail in rails and (not finding.nodes or node in finding.nodes)


def _unjudged(report: Report, rails: set[int]) -> Iterator[str]:
    speeds = sorted({f"rail {each.rail} by {each.speed.name}" for each in report.unjudged if each.rail in rails})
    if speeds:
        yield f"speed not judged: {', '.join(speeds)}"


def _joined(texts: list[str]) -> str:
    more = [f"{len(texts) - _MOST_TEXTS} more"] if len(texts) > _MOST_TEXTS else []
    return "; ".join([*(printable(text)[:_LONGEST_TEXT] for text in texts[:_MOST_TEXTS]), *more])
