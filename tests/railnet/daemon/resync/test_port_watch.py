"""A PF's link has changed: what is read, and who is called."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from railnet.daemon.resync import port_watch
from railnet.daemon.resync.resync_requests import ResyncRequests
from railnet.kernel.netlink import link_changes
from railnet.kernel.netlink.pf_link_state import PfLink
from railnet.kernel.sysfs.functions import Sysfs
from railnet.vf.changed_functions import ChangedFunctions
from railnet.vf.inventory import PhysicalFunction
from railnet.vf.pci_address import PciAddress
from railnet.vf.vf_table import VfTable
from tests.deviceplugin.builders import two_rails

Look = Callable[[Mapping[int, PfLink | None]], Awaitable[None]]
NO_CARRIER = PfLink(True, False, "DOWN", "52:54:00:00:00:01")
FIRST, SECOND = 12, 13  # ifindexes


class Node:
    """Two PFs; the kernel reports `links`, and reading a PF again finds `carrier`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        first, second = two_rails().pfs
        assert second.netdev is not None
        second = replace(second, netdev=replace(second.netdev, ifindex=SECOND))
        self.table = VfTable(replace(two_rails(), pfs=(first, second)))
        self.carrier: bool | None = None
        self.error: OSError | None = None
        self.read: list[PhysicalFunction] = []
        self.watched: list[int] = []
        self.calls = 0
        self._links: Mapping[int, PfLink | None] = {}
        monkeypatch.setattr(port_watch, "reread_pfs", self._reread)
        monkeypatch.setattr(link_changes, "watch", self._watch)

    def hear(self, links: Mapping[int, PfLink | None]) -> ChangedFunctions:
        """Have the kernel report links; return what the resync reads next."""
        self._links = links

        async def main() -> ChangedFunctions:
            requests = ResyncRequests()
            await port_watch.watching_ports(self.table, Sysfs(Path("/sys")), self._changed, requests)
            return requests.take()

        return asyncio.run(main())

    def _changed(self) -> None:
        self.calls += 1

    async def _watch(
        self, watched: Callable[[], Collection[int]], observe: link_changes.Observe, look: Look, _: float
    ) -> None:
        assert observe == self.table.observe
        self.watched = sorted(watched())
        await look(self._links)

    async def _reread(
        self, _: Sysfs, pfs: list[PhysicalFunction], known: Mapping[int, PfLink | None]
    ) -> dict[PciAddress, PhysicalFunction]:
        if self.error is not None:
            raise self.error
        assert known == self._links
        self.read += pfs
        return {pf.address: replace(pf, carrier=self.carrier) for pf in pfs}


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Node:
    return Node(monkeypatch)


def test_pf_whose_link_has_changed_is_read_and_sent_at_once_and_the_resync_reads_its_vfs(node: Node) -> None:
    node.carrier = False

    resync = node.hear({SECOND: NO_CARRIER})

    assert [pf.address for pf in node.read] == [node.table.inventory.pfs[1].address]
    assert [pf.carrier for pf in node.table.inventory.pfs] == [None, False]
    assert (node.calls, node.watched) == (1, [FIRST, SECOND])
    assert resync == ChangedFunctions(cards=frozenset({node.table.inventory.pfs[1].address}))


def test_facts_that_are_the_same_are_no_news(node: Node) -> None:
    resync = node.hear({FIRST: None, SECOND: None})

    assert (len(node.read), node.calls, resync) == (2, 0, ChangedFunctions())


def test_pf_that_cannot_be_read_is_left_to_the_resync(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    node.error = OSError(24, "too many open files")

    resync = node.hear({FIRST: None})

    assert (node.calls, resync) == (0, ChangedFunctions(cards=frozenset({node.table.inventory.pfs[0].address})))
    assert "port watch: [Errno 24] too many open files" in caplog.text
