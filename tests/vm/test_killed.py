"""Whatever call the daemon was about to make when it was killed, or when the call failed: its next start and DEL leave nothing.

Tried are the calls that change a VF, its namespace or the journal. The others are of the same code on any card, and
tests/faults tries them all.
"""

import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from simnode.runtime import CniFailed
from simnode.supervisor import Point, Supervisor, Watch
from tests.faults.interference import FAILED, KILLED, How
from tests.vm import killed
from tests.vm.guest import Guest, Pod, left_over, netdevs

_SUPERVISOR = Path("/run/simnode/supervisor.sock")
_CALLS = ("rename", "setns", "sendto")


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


_TRIED = (("ADD", 2, KILLED), ("DEL", 1, KILLED), ("ADD", 1, FAILED), ("DEL", 1, FAILED))


@pytest.mark.parametrize(("verb", "vfs", "how"), _TRIED, ids=[f"{verb}-{vfs}-{how.words}" for verb, vfs, how in _TRIED])
def test_nothing_is_left_whatever_call_is_not_made(
    guest: Guest, supervisor: Supervisor, verb: str, vfs: int, how: How
) -> None:
    before = netdevs()
    counted = run(guest, supervisor, how, Watch(), verb, vfs)
    outcomes = {}

    for number, point in enumerate(counted.numbered("daemon"), start=1):
        if not changes_the_node(point):
            continue
        watch = run(guest, supervisor, how, Watch("daemon", number, how.interfere), verb, vfs)
        outcomes[f"{number}, {watch.hit}"] = [
            *([] if watch.hit == point else [f"{point} was not reached"]),
            *left_over(),
            *(f"{vf} has no netdev {name}" for vf, name in before.items() if netdevs().get(vf) != name),
        ]

    assert [call for call in _CALLS if not any(f"'s {call} " in point for point in outcomes)] == []
    assert {point: left for point, left in outcomes.items() if left} == {}
    sys.stdout.write(f"{verb} of {vfs} VFs, {how.words}: {len(outcomes)} points, all recovered, zero left over\n")


def run(guest: Guest, supervisor: Supervisor, how: How, watch: Watch, verb: str, vfs: int) -> Watch:
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


def changes_the_node(point: Point) -> bool:
    return point.operand != "socket" and "TEMPORARY" not in point.operand
