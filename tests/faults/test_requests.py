"""ADD and DEL with a fault at each state-changing call of daemon, executable and delegates."""

from contextlib import nullcontext, suppress

import pytest

from simnode.chaos.syscall_supervisor import CallWatch, Point
from simnode.kubernetes.runtime import CniFailed, Sandbox
from tests.faults.fault_kinds import (
    DAEMON_KILLED,
    EXECUTABLE_KILLED,
    FAILED,
    HALTED,
    KILLED,
    KILLED_BACK_FIRST,
    STOPPED,
    FaultKind,
)
from tests.faults.matrix import Row
from tests.faults.points import each_point
from tests.faults.supervised_node import SupervisedNode

_MATRIX = [
    ("daemon", KILLED),
    ("daemon", KILLED_BACK_FIRST),
    ("daemon", FAILED),
    ("daemon", HALTED),
    ("daemon", STOPPED),
    ("daemon", EXECUTABLE_KILLED),
    ("executable", KILLED),
    ("executable", FAILED),
    ("delegate", KILLED),
    ("delegate", FAILED),
    ("delegate", EXECUTABLE_KILLED),
    ("delegate", DAEMON_KILLED),
]


# Delegates do the same for pods with and without a rail. Without a daemon, the executable itself serves a pod without a rail.
_ROWS = [
    (verb, vfs, process, kind)
    for verb in ("ADD", "DEL")
    for vfs in (1, 0)
    for process, kind in _MATRIX
    if vfs or process != "delegate" or kind is DAEMON_KILLED
]


@pytest.mark.parametrize(
    ("verb", "vfs", "process", "kind"),
    _ROWS,
    ids=[f"{verb}-{vfs}-{process}-{kind.name}" for verb, vfs, process, kind in _ROWS],
)
def test_request_with_a_fault_at_any_call_leaves_nothing_over(
    supervised: SupervisedNode, row: Row, verb: str, vfs: int, process: str, kind: FaultKind
) -> None:
    row.operation, row.process, row.fault = f"{verb}, {'rail' if vfs else 'plain'} pod", process, kind.name

    def trial(watch: CallWatch) -> list[str]:
        if verb == "ADD":
            supervised.serve_two_pods()
        identity = supervised.admit(vfs)
        sandbox = supervised.sandbox(identity)
        if verb == "DEL":
            supervised.node.runtime.add(sandbox)
        with supervised.patient() if kind.harmless else nullcontext():
            failure = supervised.run_watched(watch, verb, sandbox)
        if kind.harmless and failure is not None:
            return [f"the request failed: {failure}"]
        problems = _aftermath(supervised, sandbox, kind, watch.hit)
        if kind is FAILED and watch.hit is not None and _is_hidden(watch.hit):
            supervised.age_reservations(lambda _: True)
        return [*problems, *supervised.run_again(identity)]

    each_point(row, process, kind, supervised, trial)


def _is_hidden(failed: Point) -> bool:
    """Return whether no process reports the failure: host-local's DEL succeeds even if it cannot unlink the address.

    Source: plugins/ipam/host-local/backend/disk/backend.go, ReleaseByID, which returns nil. The daemon collects the
    address later.
    """
    return failed.process == "delegate host-local" and failed.call.startswith("unlink")


def _aftermath(supervised: SupervisedNode, sandbox: Sandbox, kind: FaultKind, hit: Point | None) -> list[str]:
    """Do what runtime and DaemonSet do after any result of the request: DEL, a new start of the daemon, DEL until it succeeds."""
    daemon_died = kind.kills_daemon(hit)
    problems = supervised.restart_dead_daemon(killed=daemon_died) if kind.back_first else []
    with suppress(CniFailed):
        supervised.node.runtime.delete(sandbox)
    if kind.wakes:
        supervised.continue_daemon()
    problems += supervised.restart_dead_daemon(killed=daemon_died and not kind.back_first)
    return [*problems, *supervised.delete(sandbox)]
