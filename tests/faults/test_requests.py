"""ADD and DEL: at each state-changing call of daemon, executable and delegates one dies, is stopped, or the call fails."""

from contextlib import suppress

import pytest

from simnode.chaos.syscall_supervisor import Point, Watch
from simnode.kubernetes.runtime import CniFailed, Sandbox
from tests.faults.ground import Ground
from tests.faults.interference import (
    DAEMON_KILLED,
    EXECUTABLE_KILLED,
    FAILED,
    HALTED,
    KILLED,
    KILLED_BACK_FIRST,
    STOPPED,
    How,
)
from tests.faults.points import each_point
from tests.faults.table import Row

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


# Whether a pod has a rail is nothing to its delegates; without a daemon, the slow lane serves one that has none.
_ROWS = [
    (verb, vfs, process, how)
    for verb in ("ADD", "DEL")
    for vfs in (1, 0)
    for process, how in _MATRIX
    if vfs or process != "delegate" or how is DAEMON_KILLED
]


@pytest.mark.parametrize(
    ("verb", "vfs", "process", "how"),
    _ROWS,
    ids=[f"{verb}-{vfs}-{process}-{how.words}" for verb, vfs, process, how in _ROWS],
)
def test_nothing_is_left_whatever_happens_at_a_call(
    ground: Ground, row: Row, verb: str, vfs: int, process: str, how: How
) -> None:
    row.operation, row.process, row.fault = f"{verb}, {'rail' if vfs else 'plain'} pod", process, how.words

    def trial(watch: Watch) -> list[str]:
        identity = ground.admit(vfs)
        box = ground.sandbox(identity)
        if verb == "DEL":
            ground.node.runtime.add(box)
        failure = ground.watched(watch, verb, box)
        if how.harmless and failure is not None:
            return [f"it failed: {failure}"]
        problems = _aftermath(ground, box, how, watch.hit)
        if how is FAILED and watch.hit is not None and _is_hidden(watch.hit):
            ground.pass_time(lambda _: True)
        return [*problems, *ground.again(identity)]

    each_point(row, process, how, ground, trial)


def _is_hidden(failed: Point) -> bool:
    """Tell whether nobody hears of a failure: host-local's DEL succeeds also where it could not unlink the address.

    Source: plugins/ipam/host-local/backend/disk/backend.go, ReleaseByID, which returns nil for it. A later sweep finds it.
    """
    return failed.process == "delegate host-local" and failed.call.startswith("unlink")


def _aftermath(ground: Ground, box: Sandbox, how: How, hit: Point | None) -> list[str]:
    """Do what runtime and DaemonSet do: DEL, whatever came of the request; the daemon again; DEL until it succeeds."""
    daemon_died = how.kills_daemon(hit)
    problems = ground.revive(killed=daemon_died) if how.back_first else []
    with suppress(CniFailed):
        ground.node.runtime.delete(box)
    if how.wakes:
        ground.wake()
    problems += ground.revive(killed=daemon_died and not how.back_first)
    return [*problems, *ground.delete(box)]
