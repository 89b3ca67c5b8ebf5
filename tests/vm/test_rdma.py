"""RDMA netlink of a real kernel, with a software RDMA device (rdma_rxe) on a VF's netdev."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from railnet.kernel.netlink import rdma
from railnet.vf.guid import Guid
from railnet.vf.inventory import DeviceNode
from simnode.waiting import wait_until
from tests.vm.guest import Guest, vfs

CLASS = Path("/sys/class/infiniband/rxe0")


@pytest.fixture
def rxe(guest: Guest) -> Iterator[None]:
    """Create the RDMA device rxe0. Its netdev is up as long as the device exists, which rdma_rxe needs."""
    (netdev,) = (path.name for path in Path(f"/sys/bus/pci/devices/{vfs()[0]}/net").iterdir())
    run("ip", "link", "set", netdev, "up")
    # The port's state depends on the carrier, which comes a little later.
    carrier = Path(f"/sys/class/net/{netdev}/carrier")
    wait_until(lambda: carrier.read_text() == "1\n", 60, "the carrier")
    run("rdma", "link", "add", "rxe0", "type", "rxe", "netdev", netdev)
    yield
    run("rdma", "link", "delete", "rxe0")
    run("ip", "link", "set", netdev, "down")


@pytest.fixture
def exclusive() -> Iterator[None]:
    run("rdma", "system", "set", "netns", "exclusive")
    yield
    run("rdma", "system", "set", "netns", "shared")


@pytest.mark.usefixtures("rxe")
def test_character_device_has_the_name_and_numbers_of_sysfs() -> None:
    with rdma.opened() as netlink:
        device = netlink.find("rxe0")
        found = netlink.character_device(device.dev_index, "uverbs")
        issm = netlink.character_device(device.dev_index, "issm")

    (verbs,) = Path("/sys/class/infiniband_verbs").glob("uverbs*")
    major, minor = map(int, (verbs / "dev").read_text().split(":"))
    assert found == DeviceNode(verbs.name, major, minor)
    assert issm is None


@pytest.mark.usefixtures("rxe")
def test_device_and_port_are_as_in_sysfs() -> None:
    with rdma.opened() as netlink:
        (device,) = netlink.devices()
        port = netlink.port(device.dev_index)

    assert (device.name, device.node_guid) == ("rxe0", Guid.parse((CLASS / "node_guid").read_text().strip()))
    assert port == tuple((CLASS / "ports/1" / name).read_text().strip() for name in ("state", "phys_state"))


@pytest.mark.usefixtures("guest", "exclusive")
def test_exclusive_mode_is_read() -> None:
    assert rdma.netns_mode() == "exclusive"


@pytest.mark.usefixtures("guest")
def test_shared_mode_is_read() -> None:
    assert rdma.netns_mode() == "shared"


def run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)
