"""The part of `railnet validate --idle` that asks the API server: which nodes are idle, and the condition of those that were tried."""

import time
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime

from railnet.apiserver.client import Absent, ApiServer, RequestFailed
from railnet.apiserver.node_status import look, parse, set_condition
from railnet.apiserver.object_watch import pages
from railnet.apiserver.request import Collection
from railnet.validate.failure import JobComes, ValidateFailed
from railnet.validate.idle.idle_nodes import idle_nodes
from railnet.validate.idle.job_arrivals import JobArrivals
from railnet.validate.idle.node_verdict import TYPE, NodeVerdict, next_verdict
from railnet.validate.probe.probe_objects import Run, choose, parts
from railnet.validate.probe.probe_pods import RunsCommands
from railnet.validate.reports.report import Report
from railnet.validate.validation import LOOK_SECONDS, Validation, WantedTests

_MOST_SHOWN = 8


def run_idle(
    api: ApiServer,
    execution: RunsCommands,
    run: Run,
    wanted: WantedTests,
    say: Callable[[str], None],
    look_seconds: float = LOOK_SECONDS,
) -> Report | None:
    """Measure idle nodes, and take everything back; None if nothing was tried, or a job wanted what the run held. `say` is told why.

    Raises:
        RequestFailed: the API server refuses what a run needs.
        ValidateFailed: there is no node with a name that is wanted.
    """
    jobs = JobArrivals(api, run)
    if waits := jobs.begin(time.time()):
        say(f"{waits}: nothing is tried while a job waits")
        return None
    on_idle = choose_idle(api, run, wanted, say)
    if on_idle is None:
        return None
    jobs.keep_to(on_idle.nodes)
    try:
        return Validation(api, execution, run, on_idle, say, look_seconds, jobs=jobs).report()
    except JobComes as error:
        say(f"{error}: the run has ended for it, and no node's condition is changed")
        return None


def choose_idle(api: ApiServer, run: Run, wanted: WantedTests, say: Callable[[str], None]) -> WantedTests | None:
    """Return the wanted tests on idle nodes alone; None if there are no two of them. `say` is told which are left alone.

    Raises:
        RequestFailed: the user may not list nodes or the pods of all namespaces, or the API server does not answer.
        ValidateFailed: there is no node with a name that is wanted.
    """
    of_nodes = Collection("v1", "nodes", labels=wanted.selector)
    nodes = [parts(node) for page in pages(api, of_nodes) for node in page.found]
    pods = (pod for page in pages(api, Collection("v1", "pods")) for pod in page.found)
    if absent := wanted.nodes - {node["metadata"]["name"] for node in nodes}:
        raise ValidateFailed(f"nothing is tried: {_no_such(absent, wanted.selector)}")
    chosen = choose(nodes, run, wanted.nodes, wanted.rails, None)
    usable = {target.node for target in chosen.targets}
    idle = idle_nodes((node for node in nodes if node["metadata"]["name"] in usable), pods, run)
    _tell({**idle.left_alone, **chosen.left_out}, say)
    names = idle.names[: wanted.most]
    if len(names) < 2:  # noqa: PLR2004 - a pair
        say(f"a rail needs two nodes, and {len(names)} can be tried: nothing is tried")
        return None
    return wanted._replace(nodes=frozenset(names), most=None)


def write_conditions(api: ApiServer, verdicts: Mapping[str, NodeVerdict], say: Callable[[str], None]) -> bool:
    """Set the condition of each node; return whether all could be set, and say of the others why not."""
    failed = [node for node, verdict in verdicts.items() if not _is_written(api, node, verdict, say)]
    return not failed


def _is_written(api: ApiServer, node: str, verdict: NodeVerdict, say: Callable[[str], None]) -> bool:
    now = datetime.now(UTC)
    try:
        before = parse(api.send(look(node)), TYPE).condition
        verdict = next_verdict(before, verdict)
        since = before.since if before is not None and before.status == verdict.status and before.since else now
        api.send(
            set_condition(
                node,
                TYPE,
                status=verdict.status,
                reason=verdict.reason,
                message=verdict.message,
                since=since,
                now=now,
            )
        )
    except Absent:  # the node has gone meanwhile
        return True
    except RequestFailed as error:
        say(f"the condition {TYPE} of node {node} is not written: {error}")
        return False
    say(f"node {node}: {TYPE} is {verdict.status}: {verdict.message}")
    return True


def _no_such(absent: Iterable[str], selector: str) -> str:
    among = f" with the labels {selector}" if selector else ""
    return f"the cluster has no node{among} of the name {' or '.join(sorted(absent))}; correct --node"


def _tell(left_alone: Mapping[str, str], say: Callable[[str], None]) -> None:
    shown: Iterable[tuple[str, str]] = sorted(left_alone.items())[:_MOST_SHOWN]
    for node, why in shown:
        say(f"node {node} is left alone: {why}")
    if len(left_alone) > _MOST_SHOWN:
        say(f"{len(left_alone) - _MOST_SHOWN} more nodes are left alone")
