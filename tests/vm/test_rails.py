"""The real executable and daemon move real VFs in and out of pods."""

import time

from simnode.ping import ping
from simnode.waiting import wait_until
from tests.vm.guest import JOURNAL, Guest, answers, left_over, mac_of, netdevs

STALE = "02:00:00:00:00:99"
_SECONDS = 60.0  # of an emulated processor


def test_rail_is_the_vf_with_its_mac_mtu_and_address_and_is_up(guest: Guest) -> None:
    macs = {vf: mac_of(name) for vf, name in netdevs().items()}
    pod = guest.run("train")
    vf, address, net1 = pod.rails[0]["vf"], pod.address, pod.links()["net1"]
    guest.remove(pod)

    assert (net1["parentdev"], net1["address"], net1["mtu"], "UP" in net1["flags"]) == (vf, macs[vf], 1500, True)
    assert address in [entry["local"] for entry in net1["addr_info"]]


def test_del_returns_the_netdevs_under_their_old_names(guest: Guest) -> None:
    before = netdevs()
    pod = guest.run("train", vfs=2)
    missing = before.items() - netdevs().items()
    guest.remove(pod)

    assert len(missing) == 2
    assert netdevs() == before
    assert left_over() == []


def test_two_vfs_of_one_card_reach_each_other(guest: Guest) -> None:
    # A pod with one VF gets it on the card that fewer pods use: the second goes to the other one.
    one, elsewhere, other = (guest.run(name) for name in ("one", "elsewhere", "other"))
    answered = answers(lambda: ping(one.sandbox.netns, other.address, ifname="net1"))
    for pod in (one, elsewhere, other):
        guest.remove(pod)

    assert answered


def test_neighbour_that_remembers_another_mac_is_told_after_the_carrier_has_come(guest: Guest) -> None:
    one, elsewhere, other = (guest.run(name) for name in ("one", "elsewhere", "other"))
    address = other.address
    guest.remove(other)
    one.output("ip", "neighbour", "replace", address, "lladdr", STALE, "dev", "net1", "nud", "stale")

    other = guest.run("other")
    mac = other.links()["net1"]["address"]
    wait_until(lambda: mac in one.output("ip", "neighbour", "show", address), _SECONDS, "the announcement")

    same = other.address == address
    for pod in (one, elsewhere, other):
        guest.remove(pod)
    assert same


def test_vfs_of_a_namespace_that_died_without_del_are_back_before_the_daemons_timer_is_over(guest: Guest) -> None:
    seconds_to_return(guest)  # the timer, of ten seconds, begins anew when the daemon has swept

    assert any(seconds_to_return(guest) < 5 for _ in range(3))  # a guest may stand still for a while


def seconds_to_return(guest: Guest) -> float:
    before = netdevs()
    pod = guest.run("train", vfs=2)
    began = time.monotonic()
    guest.runtime.remove_sandbox(pod.sandbox)
    wait_until(lambda: netdevs() == before and not list(JOURNAL.iterdir()), _SECONDS, "the return of netdevs and VFs")
    took = time.monotonic() - began

    again = guest.runtime.create_sandbox("default", "again", pod.identity.uid)  # with the same VFs
    guest.runtime.add(again)
    guest.runtime.tear_down(again)
    guest.remove(pod)
    return took
