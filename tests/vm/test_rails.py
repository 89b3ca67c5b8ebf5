"""The real executable and daemon move real VFs into pods and back."""

import time

from simnode.ping import SILENT_SECONDS, ping
from simnode.waiting import wait_until
from tests.vm.guest import JOURNAL, Guest, answers, left_over, mac_of, netdevs

STALE = "02:00:00:00:00:99"
_SECONDS = 180.0  # an emulated processor is slow


def test_pod_has_the_vf_with_its_mac_mtu_and_address_and_it_is_up(guest: Guest) -> None:
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
    # A pod with one VF gets it on the card that fewer pods use, so the second pod gets one on the other card.
    one, elsewhere, other = (guest.run(name) for name in ("one", "elsewhere", "other"))
    answered = answers(lambda: ping(one.sandbox.netns, other.address, ifname="net1", seconds=SILENT_SECONDS))
    for pod in (one, elsewhere, other):
        guest.remove(pod)

    assert answered


def test_neighbour_with_an_outdated_mac_gets_an_announcement_after_the_carrier(guest: Guest) -> None:
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


def test_peer_reaches_an_address_that_stays_with_its_rank_when_it_has_moved_to_another_vf(guest: Guest) -> None:
    """The peer has the old VF's MAC from the old pod's own packets, and sends none until the new VF has announced itself."""
    peer, elsewhere = guest.run("worker-1", annotations=staying("10.58.0.2/24")), guest.run("elsewhere")
    worker = guest.run("worker-0", annotations=staying("10.58.0.1/24"))
    address, vf, mac = worker.address, worker.rails[0]["vf"], worker.links()["net1"]["address"]
    dialled = answers(lambda: ping(worker.sandbox.netns, peer.address, ifname="net1", seconds=SILENT_SECONDS))
    remembered = peer.output("ip", "neighbour", "show", address)
    guest.remove(worker)

    others = [
        guest.run("other"),
        guest.run("elsewhere-too"),
    ]  # the first has the old VF now, the second one on the other card
    again = guest.run("worker-0", annotations=staying("10.58.0.1/24"))
    new = again.rails[0]["vf"], again.links()["net1"]["address"]
    wait_until(lambda: new[1] in peer.output("ip", "neighbour", "show", address), _SECONDS, "the announcement")
    answered = ping(peer.sandbox.netns, address, ifname="net1")
    same = again.address == address
    for pod in (peer, elsewhere, *others, again):
        guest.remove(pod)

    assert dialled
    assert mac in remembered
    assert same
    assert new[0] != vf
    assert new[1] != mac
    assert answered


def staying(address: str) -> dict[str, str]:
    """Return the annotations of a pod whose address the controllers gave to its rank."""
    return {"railnet.io/sticky": "true", "railnet.io/net1-ip": address}


def test_vfs_return_from_a_namespace_that_ended_without_del_before_the_daemons_timer(guest: Guest) -> None:
    seconds_to_return(guest)  # the daemon restarts its timer of ten seconds after each sweep

    assert any(seconds_to_return(guest) < 5 for _ in range(3))  # the guest may be stopped for a while


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
