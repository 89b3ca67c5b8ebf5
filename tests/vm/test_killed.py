"""Whatever call the daemon was about to make when it was killed, or when the call failed: its next start and DEL leave nothing.

Tried are the calls that change a VF, its namespace or the journal. The others are of the same code on any card, and
tests/faults tries them all.
"""

import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from simnode.chaos.syscall_supervisor import THREAD, CallWatch, Interference, Point, Supervisor
from simnode.kubernetes.runtime import CniFailed
from tests.faults.fault_kinds import FAILED, KILLED, FaultKind
from tests.vm import killed
from tests.vm.guest import Guest, Pod, left_over, netdevs

_SUPERVISOR = Path("/run/simnode/supervisor.sock")
_CALLS = ("rename", "setns", "sendto")
_VARIES = 5  # what the daemon does when it has answered already, of which a run sees more or less


@pytest.fixture(scope="module")
def supervisor(provisioned: Guest) -> Iterator[Supervisor]:
    before = provisioned.daemon
    with Supervisor(_SUPERVISOR) as made:
        provisioned.stop_daemon()
        provisioned.daemon = killed.MortalDaemon(_SUPERVISOR)
        provisioned.start_daemon()
        yield made
        provisioned.stop_daemon()
    provisioned.daemon = before
    provisioned.start_daemon()


_TRIED = (("ADD", 1, KILLED), ("DEL", 1, KILLED), ("ADD", 2, FAILED), ("DEL", 1, FAILED))  # a death costs a start


@pytest.mark.parametrize(("verb", "vfs", "how"), _TRIED, ids=[f"{verb}-{vfs}-{how.name}" for verb, vfs, how in _TRIED])
def test_nothing_is_left_whatever_call_is_not_made(
    guest: Guest, supervisor: Supervisor, verb: str, vfs: int, how: FaultKind
) -> None:
    before = netdevs()
    # The least of some runs: in one the daemon may look at the node, by its timer or a uevent of before.
    expected = min(len(run(guest, supervisor, how, watching(), verb, vfs).points) for _ in range(3))
    outcomes = {}

    while True:
        number = len(outcomes) + 1
        watch = run(guest, supervisor, how, watching(number, how.interfere), verb, vfs)
        if watch.hit is None:
            break
        outcomes[f"{number}, {watch.hit}"] = [
            *left_over(),
            *(f"{vf} has no netdev {name}" for vf, name in before.items() if netdevs().get(vf) != name),
        ]

    assert len(outcomes) >= expected - _VARIES
    assert [call for call in _CALLS if not any(f"'s {call} " in point for point in outcomes)] == []
    assert {point: left for point, left in outcomes.items() if left} == {}
    sys.stdout.write(f"{verb} of {vfs} VFs, {how.name}: {len(outcomes)} points, all recovered, zero left over\n")


def run(guest: Guest, supervisor: Supervisor, how: FaultKind, watch: CallWatch, verb: str, vfs: int) -> CallWatch:
    """Run a pod's ADD and DEL, one of them watched; a daemon that is dead is there again before the runtime's DEL."""
    pod = guest.admit("train", vfs) if verb == "ADD" else guest.run("train", vfs)
    call = guest.runtime.add if verb == "ADD" else guest.runtime.delete
    with supervisor.watching(watch), suppress(CniFailed):
        call(pod.sandbox)
    if how.kills_daemon(watch.hit):
        guest.await_death()
        guest.start_daemon()
    end(guest, pod)
    return watch


def end(guest: Guest, pod: Pod) -> None:
    """Take a pod down; a runtime tries a failed DEL again."""
    with suppress(CniFailed):
        guest.runtime.delete(pod.sandbox)
    guest.remove(pod)


def watching(number: int = 0, interfere: Interference | None = None) -> CallWatch:
    """Watch the daemon's calls that change the node, and interfere with one."""
    return CallWatch("daemon", number, interfere, changes_the_node)


def changes_the_node(point: Point) -> bool:
    return point.process == "daemon" and point.operand not in ("socket", THREAD) and "TEMPORARY" not in point.operand
