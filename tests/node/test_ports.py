"""A PF's port goes down and comes back: kubelet knows long before the daemon's timer, of ten seconds, would have looked."""

import time

from railnet.kernel.netlink.rtnetlink import links
from simnode.hardware.pf_properties import SimulatedPf
from simnode.node import RESOURCE, Node

_TIMER_SECONDS = 10.0
_PATIENCE_SECONDS = 60.0


def test_port_of_a_pf_that_is_up_reaches_list_and_watch_before_the_resync(node: Node) -> None:
    pf = SimulatedPf()
    with links() as route:
        ifindex = route.ifindex(pf.netdev)
        assert ifindex is not None
        route.set_up(ifindex)

    assert any(
        seconds_to_notice(node, pf) < _TIMER_SECONDS for _ in range(3)
    )  # the machine may stand still for a while


def seconds_to_notice(node: Node, pf: SimulatedPf) -> float:
    """Take the port down, and up, down and up again; return the seconds from the first notice to the last."""
    node.hca.set_port(pf.address, active=False)
    node.kubelet.wait_for_devices(RESOURCE, 0, _PATIENCE_SECONDS)
    noticed = time.monotonic()  # the daemon's timer begins anew

    node.hca.set_port(pf.address, active=True)
    node.kubelet.wait_for_devices(RESOURCE, node.vfs, _PATIENCE_SECONDS)
    node.hca.set_port(pf.address, active=False)
    node.kubelet.wait_for_devices(RESOURCE, 0, _PATIENCE_SECONDS)
    node.hca.set_port(pf.address, active=True)
    node.kubelet.wait_for_devices(RESOURCE, node.vfs, _PATIENCE_SECONDS)

    return time.monotonic() - noticed
