"""One node for all tests of this folder; they run inside the guest of scripts/vm."""

from collections.abc import Iterator

import pytest
from pyudev import Context, Monitor

from tests.vm.guest import Guest, left_over, netdevs


@pytest.fixture(scope="session")
def provisioned() -> Iterator[Guest]:
    """The guest with VFs made by the daemon, which is running; one plain pod has been there."""
    monitor = Monitor.from_netlink(Context(), source="kernel")
    monitor.start()
    with Guest() as guest:
        guest.start_daemon()
        while (device := monitor.poll(timeout=0)) is not None:
            guest.uevents.append((device.action, device.device_path))
        # The bridge plugin that is killed while it makes the bridge leaves one without a MAC, and the next ADD fails once.
        guest.remove(guest.run("plain", vfs=0))
        yield guest


@pytest.fixture
def guest(provisioned: Guest) -> Iterator[Guest]:
    """A node with a running daemon; whatever a test does to it, nothing may be left and every netdev has its name."""
    names = netdevs()
    yield provisioned
    if provisioned.daemon.process is None or provisioned.daemon.process.poll() is not None:
        provisioned.start_daemon()
    provisioned.wait_until_healthy()
    assert left_over() == []
    assert netdevs() == names
