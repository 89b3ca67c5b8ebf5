"""Whatever the daemon was about to change when it was killed: its next start and DEL leave nothing."""

from contextlib import suppress

import pytest

from simnode.runtime import CniFailed
from tests.vm import killed
from tests.vm.guest import Guest, left_over, netdevs

_ATTACH = ("write", "set_alias", "move_up", "add_address", "write")
_DETACH = ("write", "move", "write", "remove")


@pytest.fixture(scope="module", autouse=True)
def mortal_daemon(provisioned: Guest) -> None:
    provisioned.stop_daemon()
    provisioned.daemon = killed.MortalDaemon()
    provisioned.start_daemon()


@pytest.mark.parametrize(("change", "what"), [*enumerate(_ATTACH, start=1)])
def test_attach_killed_before_a_change_is_undone_at_the_next_start(guest: Guest, change: int, what: str) -> None:
    before = netdevs()
    pod = guest.admit("train", 1)
    killed.arm(change)
    with pytest.raises(CniFailed) as failure:
        guest.runtime.add(pod.sandbox)
    guest.await_death()
    guest.start_daemon()
    recovered = netdevs()
    guest.remove(pod)

    assert killed.REACHED.read_text() == what
    assert failure.value.code == 11
    assert recovered == before
    assert left_over() == []


def test_attach_of_two_vfs_killed_between_their_moves_is_undone_at_the_next_start(guest: Guest) -> None:
    before = netdevs()
    pod = guest.admit("train", 2)
    killed.arm(_ATTACH.index("move_up") + 3)
    with pytest.raises(CniFailed):
        guest.runtime.add(pod.sandbox)
    guest.await_death()
    apart = len(netdevs())
    guest.start_daemon()
    recovered = netdevs()
    guest.remove(pod)

    assert apart == len(before) - 1
    assert recovered == before


@pytest.mark.parametrize(("change", "what"), [*enumerate(_DETACH, start=1)])
def test_detach_killed_before_a_change_is_finished_at_the_next_start(guest: Guest, change: int, what: str) -> None:
    before = netdevs()
    pod = guest.run("train")
    killed.arm(change)
    with suppress(CniFailed):  # without a daemon DEL may succeed: the record tells the next start
        guest.runtime.delete(pod.sandbox)
    guest.await_death()
    guest.start_daemon()
    guest.remove(pod)

    assert killed.REACHED.read_text() == what
    assert netdevs() == before
    assert left_over() == []
