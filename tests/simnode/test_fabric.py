import subprocess
from pathlib import Path

import pytest

from simnode.ping import ping

PF = Path("/sys/bus/pci/devices/0000:03:00.0")


@pytest.fixture
def pods(hca, pod_netns):
    """Two network namespaces, each with a VF's netdev up: 10.56.0.1 and 10.56.0.2, fd00::1 and fd00::2."""
    (PF / "sriov_numvfs").write_text("2")
    hca.settle()
    paths = pod_netns("one"), pod_netns("two")
    for number, path in enumerate(paths, 1):
        commands = (
            f"link set ibs5v{number - 1} netns {path.name} name net1",
            f"-n {path.name} address add 10.56.0.{number}/24 dev net1",
            f"-n {path.name} address add fd00::{number}/64 dev net1 nodad",
            f"-n {path.name} link set net1 up",
        )
        for command in commands:
            subprocess.run(["ip", *command.split()], check=True)
    return paths


@pytest.mark.parametrize("address", ["10.56.0.2", "fd00::2"])
def test_fabric_carries_a_ping_between_pods(pods, fabric, address):
    before = fabric.counters.bytes

    assert ping(pods[0], address, ifname="net1")
    assert fabric.counters.bytes - before >= 2 * 84


def test_ping_fails_while_the_fabric_is_stopped(pods, fabric):
    fabric.stop()
    stopped = ping(pods[0], "10.56.0.2")
    fabric.start()

    assert not stopped
    assert ping(pods[0], "10.56.0.2")


def test_address_that_nobody_has_does_not_answer(pods):
    assert not ping(pods[0], "10.56.0.99")
