"""Searches of all namespaces: concurrent callers share one, and it never begins before the call."""

import asyncio
import threading
from collections.abc import Collection
from pathlib import Path

import pytest

from cni.attachment.orphan_search import OrphanSearch
from railnet.kernel.namespaces import orphan_netdev_return
from railnet.vf.orphan_rescue import OrphanNetdev
from railnet.vf.pci_address import PciAddress
from railnet.vf.record import Netns
from railnet.vf.sandbox_difference import SandboxLink
from tests.railnet.vf.builders import FIRST, SECOND

ORPHAN = OrphanNetdev(
    Netns("/run/netns/x", 4, 7), SandboxLink("net1", "InfiniBand", 4092, up=True, addresses=frozenset()), "ibs5v0"
)


class Searches:
    """Namespaces in which every VF is found; the first search does not end before `goes_on` is set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[set[PciAddress]] = []
        self.began, self.goes_on = threading.Event(), threading.Event()
        monkeypatch.setattr(orphan_netdev_return, "find_orphans", self._find)

    def _find(self, vfs: Collection[PciAddress], root: Path) -> dict[PciAddress, OrphanNetdev]:
        self.asked.append(set(vfs))
        self.began.set()
        self.goes_on.wait(20)
        return dict.fromkeys(vfs, ORPHAN)


def test_callers_during_a_search_share_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    searches = Searches(monkeypatch)

    async def main() -> list[dict[PciAddress, OrphanNetdev]]:
        search = OrphanSearch(Path("/"))
        asked = [asyncio.create_task(search.find((FIRST,)))]
        await asyncio.to_thread(searches.began.wait, 20)
        asked += [asyncio.create_task(search.find((vf,))) for vf in (FIRST, SECOND)]
        await asyncio.sleep(0)
        searches.goes_on.set()
        return await asyncio.gather(*asked)

    found = asyncio.run(main())

    assert searches.asked == [{FIRST}, {FIRST, SECOND}]
    assert found == [{FIRST: ORPHAN}, {FIRST: ORPHAN}, {SECOND: ORPHAN}]


def test_call_after_a_search_that_failed_begins_another(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> dict[PciAddress, OrphanNetdev]:
        search = OrphanSearch(Path("/"))
        with monkeypatch.context() as refused:
            refused.setattr(orphan_netdev_return, "find_orphans", refuse)
            with pytest.raises(OSError, match="Too many open files"):
                await search.find((FIRST,))
        Searches(monkeypatch).goes_on.set()
        return await search.find((FIRST,))

    assert asyncio.run(main()) == {FIRST: ORPHAN}


def refuse(vfs: Collection[PciAddress], root: Path) -> dict[PciAddress, OrphanNetdev]:
    raise OSError(24, "Too many open files")


def test_no_search_begins_without_a_vf(monkeypatch: pytest.MonkeyPatch) -> None:
    searches = Searches(monkeypatch)

    assert asyncio.run(OrphanSearch(Path("/")).find(())) == {}
    assert searches.asked == []
