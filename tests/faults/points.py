"""The points of one row of the matrix: run the same operation with the fault at its first call, at its second call, and so on."""

from collections.abc import Callable

import grpc

from simnode.chaos.syscall_supervisor import CallWatch
from simnode.daemon_process import DaemonFailed
from simnode.kubernetes.kubelet import UnexpectedAdmissionError
from simnode.kubernetes.runtime import CniFailed
from tests.faults.fault_kinds import FaultKind
from tests.faults.matrix import Row
from tests.faults.supervised_node import SupervisedNode

_COUNTS = 3  # of a run without faults
_VARIES = 5  # points more or less in each run: thread starts, and the daemon's work after its answer


def each_point(
    row: Row, process: str, kind: FaultKind, supervised: SupervisedNode, trial: Callable[[CallWatch], list[str]]
) -> None:
    """Try each point of a process until none has the next number; fail if a trial has problems or something is left over.

    `trial` runs the operation with a watch and the steps after a fault, and returns the problems.
    """
    expected, number = _count(process, kind, supervised, trial), 1
    while True:
        problems = tried(supervised, trial, watch := kind.watch(process, number))
        if watch.hit is None:
            break
        row.count(f"{number}, {watch.hit}", problems)
        number += kind.every

    for _ in range(_COUNTS - 1):  # on a busy machine a run can be so slow that work of every ten seconds falls into it
        if row.points * kind.every < expected - _VARIES:
            expected = min(expected, _count(process, kind, supervised, trial))
    least = max(1, expected - _VARIES)
    assert row.points * kind.every >= least, f"a run without faults has {expected} points, and {row.points} were tried"
    assert row.failures == [], row.failures


def _count(process: str, kind: FaultKind, supervised: SupervisedNode, trial: Callable[[CallWatch], list[str]]) -> int:
    """Return how many points a run without faults has."""
    counted = kind.watch(process, 0)
    problems = tried(supervised, trial, counted)
    assert problems == [], problems  # named here: pytest explains no assertion outside of test modules and conftest.py
    return len(counted.numbered(process))


def tried(supervised: SupervisedNode, trial: Callable[..., list[str]], *arguments: object) -> list[str]:
    """Run a trial; return its problems and what is left over, and remove the leftovers."""
    try:
        problems = trial(*arguments)
    except (CniFailed, DaemonFailed, TimeoutError, UnexpectedAdmissionError, grpc.RpcError) as error:
        problems = [f"{type(error).__name__}: {error}"]
    problems = problems or supervised.left_over()
    if problems:
        supervised.clean_up()
    return problems
