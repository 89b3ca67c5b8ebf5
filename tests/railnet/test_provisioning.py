"""VFs that the daemon's start makes: how long it waits for them."""

import asyncio
import logging
from pathlib import Path
from types import SimpleNamespace

import pytest

from kernel.sysfs import Sysfs
from railnet import provisioning
from railnet.configuration import Configuration, HostPaths
from tests.kernel.tree import IN_POD, PF, UNBOUND, Tree
from vf.address import PciAddress
from vf.provision import Provision
from vf.table import Owner, VfTable

NOWHERE = PciAddress.parse(IN_POD)  # it has a driver, and its netdev is not on the node


class Start:
    """A node whose VFs are all made, the kernel doing nothing; time passes when somebody sleeps, and then at once."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self._folder = folder
        Tree(folder).whole()
        self._sysfs = Sysfs(folder)
        self.table = VfTable(self._sysfs.inventory())
        self.table.claim(PciAddress.parse(UNBOUND), Owner("c0ffee", "eth0", ""))
        loop = SimpleNamespace(time=lambda: self.now)
        monkeypatch.setattr(
            provisioning,
            "asyncio",
            SimpleNamespace(get_running_loop=lambda: loop, sleep=self._sleep, to_thread=asyncio.to_thread),
        )
        monkeypatch.setattr(provisioning, "perform", SimpleNamespace(provision=lambda steps, sysfs: None))
        monkeypatch.setattr(provisioning, "vf_netlink", SimpleNamespace(macs=lambda pfs: {}))

    async def _sleep(self, seconds: float) -> None:
        self.now += seconds

    def make_vfs(self) -> None:
        host = HostPaths(kubelet=self._folder)
        configuration = Configuration(host=host, provision=(Provision(PciAddress.parse(PF), 3),))
        asyncio.run(provisioning.make_vfs(configuration, self.table, self._sysfs))


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Start:
    return Start(tmp_path, monkeypatch)


def test_vf_without_a_netdev_is_waited_for_a_little_and_named(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        start.make_vfs()

    assert 5 <= start.now < 6
    assert caplog.messages == [f"no netdev or RDMA device yet: {NOWHERE}"]


def test_vf_that_has_been_looked_for_everywhere_is_not_waited_for(start: Start) -> None:
    start.table.withhold({NOWHERE: "it has no network interface in any network namespace"})

    start.make_vfs()

    assert start.now == 0
