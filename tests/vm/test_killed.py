"""The daemon is killed before each system call, or the call fails: its next start and a DEL leave nothing over.

The tests try the calls that change a VF, its namespace or the journal. The other calls are the same for every card, and
tests/faults tries all of them.
"""

import sys
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from simnode.chaos.syscall_supervisor import THREAD, CallWatch, Interference, Point, Supervisor
from simnode.kubernetes.runtime import CniFailed
from tests.faults.fault_kinds import FAILED, KILLED, FaultKind
from tests.faults.supervised_daemon import SupervisedDaemon
from tests.vm.guest import Guest, Pod, left_over, netdevs

_SUPERVISOR = Path("/run/simnode/supervisor.sock")
_CALLS = ("rename", "setns", "sendto")
_PASSES = 3
_VARIES = 5  # calls after the daemon's answer: a run sees some or all of them


@pytest.fixture(scope="module")
def supervisor(provisioned: Guest) -> Iterator[Supervisor]:
    before = provisioned.daemon
    with Supervisor(_SUPERVISOR) as made:
        provisioned.stop_daemon()
        provisioned.daemon = SupervisedDaemon(_SUPERVISOR)
        provisioned.start_daemon()
        yield made
        provisioned.stop_daemon()
    provisioned.daemon = before
    provisioned.start_daemon()


# Only one VF where the daemon is killed: after each kill, it must start again, which takes seconds.
_CASES = (("ADD", 1, KILLED), ("DEL", 1, KILLED), ("ADD", 2, FAILED), ("DEL", 1, FAILED))


@pytest.mark.parametrize(("verb", "vfs", "how"), _CASES, ids=[f"{verb}-{vfs}-{how.name}" for verb, vfs, how in _CASES])
def test_nothing_is_left_over_whichever_call_is_missing(
    guest: Guest, supervisor: Supervisor, verb: str, vfs: int, how: FaultKind
) -> None:
    before = netdevs()
    # The smallest of several runs: in some, the daemon also checks the node, because of its timer or an earlier uevent.
    expected = min(len(run(guest, supervisor, how, watching(), verb, vfs).points) for _ in range(3))
    outcomes: dict[str, list[str]] = {}

    # A call of the daemon's other work shifts the numbers of one run: then the call that it hid is tried in another pass.
    for _ in range(_PASSES):
        points = 0
        while (watch := run(guest, supervisor, how, watching(points + 1, how.interfere), verb, vfs)).hit is not None:
            points += 1
            outcomes[f"{points}, {watch.hit}"] = [
                *left_over(),
                *(f"{vf} has no netdev {name}" for vf, name in before.items() if netdevs().get(vf) != name),
            ]
        assert points >= expected - _VARIES
        if not untried(outcomes):
            break

    assert untried(outcomes) == []
    assert {point: leftovers for point, leftovers in outcomes.items() if leftovers} == {}
    sys.stdout.write(f"{verb} of {vfs} VFs, {how.name}: {len(outcomes)} points, all recovered, zero left over\n")


def untried(outcomes: Collection[str]) -> list[str]:
    return [call for call in _CALLS if not any(f"'s {call} " in point for point in outcomes)]


def run(guest: Guest, supervisor: Supervisor, how: FaultKind, watch: CallWatch, verb: str, vfs: int) -> CallWatch:
    """Run a pod's ADD and DEL, and watch one of them. A killed daemon is started again before the runtime's DEL."""
    pod = guest.admit("train", vfs) if verb == "ADD" else guest.run("train", vfs)
    call = guest.runtime.add if verb == "ADD" else guest.runtime.delete
    with supervisor.watching(watch), suppress(CniFailed):
        call(pod.sandbox)
        guest.wait_for_answered_deletes(lambda: watch.hit is not None)
    if how.kills_daemon(watch.hit):
        guest.await_death()
        guest.start_daemon()
    end(guest, pod)
    return watch


def end(guest: Guest, pod: Pod) -> None:
    """Remove a pod. As a real runtime does, repeat a failed DEL."""
    with suppress(CniFailed):
        guest.runtime.delete(pod.sandbox)
    guest.remove(pod)


def watching(number: int = 0, interfere: Interference | None = None) -> CallWatch:
    """Return a watch of the daemon's calls that change the node; it interferes with call `number`."""
    return CallWatch("daemon", number, interfere, changes_the_node)


def changes_the_node(point: Point) -> bool:
    return point.process == "daemon" and point.operand not in ("socket", THREAD) and "TEMPORARY" not in point.operand
