import subprocess
from pathlib import Path

import pytest

from railnet.vf.pci_address import PciAddress
from simnode.hardware.fabric import Fabric, Uplink, cable
from simnode.hardware.hca import Hca
from simnode.hardware.pf_properties import SimulatedPf
from simnode.ping import SILENT_SECONDS, ping
from tests import waiting

PFS = (SimulatedPf(), SimulatedPf(PciAddress(0, 0x83, 0, 0), netdev="ibs6"))
VFS = ("ibs5v0", "ibs6v0")  # one of each PF


@pytest.fixture
def pod(pod_netns):
    """Move a VF's netdev into a new network namespace and set it up: 10.56.0.<host> and fd00::<host>."""

    def make(netdev, host):
        path = pod_netns(netdev)
        for command in (
            f"link set {netdev} netns {path.name} name net1",
            f"-n {path.name} address add 10.56.0.{host}/24 dev net1",
            f"-n {path.name} address add fd00::{host}/64 dev net1 nodad",
            f"-n {path.name} link set net1 up",
        ):
            subprocess.run(["ip", *command.split()], check=True)
        return path

    return make


@pytest.fixture
def pods(hca, pod):
    """Two pods with a VF each of one PF: hosts 1 and 2."""
    enable(hca, SimulatedPf(), 2)
    return pod("ibs5v0", 1), pod("ibs5v1", 2)


@pytest.fixture
def other_fabric():
    with Fabric() as other:
        yield other


@pytest.fixture
def pods_on_two_fabrics(fabric, other_fabric, pod):
    """Two pods with a VF each, of PFs that are cabled to different fabrics: hosts 1 and 2."""
    hca = Hca(dict(zip(PFS, (fabric, other_fabric), strict=True)), Path("/sys"), Path("/dev"))
    for pf in PFS:
        enable(hca, pf, 1)
    yield pod(VFS[0], 1), pod(VFS[1], 2)
    hca.close()


@pytest.fixture
def joined(fabric, other_fabric):
    """Both fabrics cabled together; the value is both ends of the cable."""
    ends = tuple(map(Uplink, cable()))
    for switch, end in zip((fabric, other_fabric), ends, strict=True):
        switch.join(end)
    yield ends
    for switch, end in zip((fabric, other_fabric), ends, strict=True):
        switch.leave(end)
        end.close()


def enable(hca, pf, vfs):
    Path(f"/sys/bus/pci/devices/{pf.address}/sriov_numvfs").write_text(str(vfs))
    hca.settle()


@pytest.mark.parametrize("address", ["10.56.0.2", "fd00::2"])
def test_fabric_carries_a_ping_between_pods(pods, fabric, address):
    before = fabric.counters.bytes

    # A neighbour that does not answer three questions of a second each is unreachable: a busy machine may need more (RFC 4861, 10).
    waiting.until(lambda: ping(pods[0], address, ifname="net1", seconds=5), 30, "an answer to a ping")
    assert fabric.counters.bytes - before >= 2 * 84


def test_ping_fails_while_the_fabric_is_stopped(pods, fabric):
    fabric.stop()
    stopped = ping(pods[0], "10.56.0.2", seconds=SILENT_SECONDS)
    fabric.start()

    assert not stopped
    assert ping(pods[0], "10.56.0.2")


def test_packet_that_is_larger_than_the_fabric_takes_is_dropped(pods, fabric):
    fabric.most_bytes = 80  # a ping has 84 bytes: IPv4's header of 20, ICMP's of 8, and 56
    small = ping(pods[0], "10.56.0.2", seconds=SILENT_SECONDS)
    dropped = fabric.counters.dropped
    fabric.start()

    assert not small
    assert dropped > 0
    assert ping(pods[0], "10.56.0.2")


def test_ping_of_an_unused_address_fails(pods):
    assert not ping(pods[0], "10.56.0.99", seconds=SILENT_SECONDS)


def test_fabrics_without_a_cable_between_them_are_separate(pods_on_two_fabrics, fabric, other_fabric):
    before = other_fabric.counters

    assert not ping(pods_on_two_fabrics[0], "10.56.0.2", seconds=SILENT_SECONDS)
    assert fabric.counters.packets > 0
    assert other_fabric.counters == before


def test_cable_joins_two_fabrics(joined, pods_on_two_fabrics, fabric, other_fabric):
    assert ping(pods_on_two_fabrics[0], "10.56.0.2")
    assert ping(pods_on_two_fabrics[1], "fd00::1")
    assert fabric.counters == other_fabric.counters


def test_unplugged_cable_carries_nothing(joined, pods_on_two_fabrics, other_fabric):
    other_fabric.leave(joined[1])
    joined[1].close()

    assert not ping(pods_on_two_fabrics[0], "10.56.0.2", seconds=SILENT_SECONDS)


def test_full_cable_drops_a_packet_and_does_not_wait():
    ends = tuple(map(Uplink, cable()))
    taken = 0
    while ends[0].send(bytes(4092)):
        taken += 1
    for end in ends:
        end.close()

    assert taken > 0
