"""One node for all tests of this folder. They run inside the guest of scripts/in-vm."""

from collections.abc import Iterator

import pytest
from pyudev import Context, Monitor

from tests.vm.guest import Guest, left_over, netdevs


@pytest.fixture(scope="session")
def provisioned() -> Iterator[Guest]:
    """Yield the guest with a running daemon, which has created the VFs. One plain pod has already run."""
    monitor = Monitor.from_netlink(Context(), source="kernel")
    monitor.start()
    with Guest() as guest:
        guest.start_daemon()
        while (device := monitor.poll(timeout=0)) is not None:
            guest.uevents.append((device.action, device.device_path))
        guest.first_netdevs = netdevs()
        # This pod creates the bridge. If a test killed the bridge plugin at that moment, the bridge would lack a MAC, and the
        # next ADD would fail once.
        guest.remove(guest.run("plain", vfs=0))
        yield guest


@pytest.fixture
def guest(provisioned: Guest) -> Iterator[Guest]:
    """Yield a node with a running daemon. After each test, nothing may be left over and every netdev must have its name."""
    names = netdevs()
    yield provisioned
    if provisioned.daemon.process is None or provisioned.daemon.process.poll() is not None:
        provisioned.start_daemon()
    provisioned.wait_until_healthy()
    assert left_over() == []
    assert netdevs() == names
