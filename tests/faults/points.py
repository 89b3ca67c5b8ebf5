"""One row of the matrix: the same operation again and again, with the fault at its first call, its second, and so on."""

from collections.abc import Callable

import grpc

from simnode.chaos.syscall_supervisor import Watch
from simnode.daemon_process import DaemonFailed
from simnode.kubernetes.kubelet import UnexpectedAdmissionError
from simnode.kubernetes.runtime import CniFailed
from tests.faults.ground import Ground
from tests.faults.interference import How
from tests.faults.table import Row

_VARIES = 5  # a pool's threads, and what the daemon does when it has answered already


def each_point(row: Row, process: str, how: How, ground: Ground, trial: Callable[[Watch], list[str]]) -> None:
    """Try every point of a process, until there is none of that number; fails if a trial has problems or leaves something.

    `trial` runs the operation with a watch, and what follows a fault; it gives what went wrong.
    """
    counted = how.watch(process, 0)
    problems = tried(ground, trial, counted)
    assert problems == [], problems  # said here: pytest explains no assertion outside of test modules and conftest.py
    expected, number = len(counted.numbered(process)), 1
    while True:
        problems = tried(ground, trial, watch := how.watch(process, number))
        if watch.hit is None:
            break
        row.count(f"{number}, {watch.hit}", problems)
        number += how.every

    assert row.points * how.every >= max(1, expected - _VARIES), "a run without faults has more points"
    assert row.failures == [], row.failures


def tried(ground: Ground, trial: Callable[..., list[str]], *arguments: object) -> list[str]:
    """Run a trial; gives what went wrong and what is left over, which is then taken away."""
    try:
        problems = trial(*arguments)
    except (CniFailed, DaemonFailed, TimeoutError, UnexpectedAdmissionError, grpc.RpcError) as error:
        problems = [f"{type(error).__name__}: {error}"]
    problems = problems or ground.left()
    if problems:
        ground.mend()
    return problems
