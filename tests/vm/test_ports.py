"""A PF loses its carrier and gets it back: kubelet learns of it long before the daemon's timer of ten seconds ends."""

import time
from pathlib import Path

from railnet.kernel.netlink import pf_link_query
from railnet.kernel.sysfs.functions import Sysfs
from simnode.waiting import wait_until
from tests.vm.guest import PFS, VFS, Cables, Guest, carrier

_TIMER_SECONDS = 10.0
_SECONDS = 180.0  # an emulated processor is slow


def test_pulled_cable_reaches_list_and_watch_before_the_resync(guest: Guest) -> None:
    pf = PFS[0]
    with Cables() as cables:
        assert any(
            seconds_to_notice(guest, cables, pf) < _TIMER_SECONDS for _ in range(3)
        )  # the guest may be stopped for a while

    guest.wait_until_healthy()
    assert f"PF {pf} (" in guest.daemon.log()
    assert "has no carrier: check its cable and switch port" in guest.daemon.log()


def seconds_to_notice(guest: Guest, cables: Cables, pf: str) -> float:
    """Pull a cable, plug it and pull it again, and plug it at last. Return the seconds from the first to the last notice of a pull."""
    half = VFS * (len(PFS) - 1)
    cables.pull(pf)
    guest.wait_until_healthy(half)
    noticed = time.monotonic()  # the timer has restarted at most half a second ago
    cables.plug(pf)
    wait_until(lambda: carrier(pf), _SECONDS, "the carrier to return")
    guest.wait_until_healthy(VFS * len(PFS))
    cables.pull(pf)
    guest.wait_until_healthy(half)
    seconds = time.monotonic() - noticed
    cables.plug(pf)
    wait_until(lambda: carrier(pf), _SECONDS, "the carrier to return")
    guest.wait_until_healthy()
    return seconds


def test_link_of_a_pf_is_read_with_mac_and_carrier(guest: Guest) -> None:
    netdevs = [pf.netdev for pf in Sysfs(Path("/sys")).inventory().pfs if pf.netdev is not None]

    found = pf_link_query.read(netdev.ifindex for netdev in netdevs)

    assert [found[netdev.ifindex] for netdev in netdevs] == [
        pf_link_query.PfLink(up=True, carrier=True, operstate="UP", address=f"52:54:00:00:00:0{number}")
        for number in (1, 2)
    ]
