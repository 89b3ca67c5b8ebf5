"""Looks into all namespaces: shared by those who ask, and never older than the question."""

import asyncio
import threading
from collections.abc import Collection
from pathlib import Path

import pytest

from cni.attachment.orphan_search import OrphanSearch
from kernel import orphan_netdevs
from tests.vf.builders import FIRST, SECOND
from vf.address import PciAddress
from vf.orphans import OrphanNetdev
from vf.record import Netns
from vf.sandbox_difference import LinkState

STRAY = OrphanNetdev(
    Netns("/run/netns/x", 4, 7), LinkState("net1", "InfiniBand", 4092, up=True, addresses=frozenset()), "ibs5v0"
)


class Looks:
    """Namespaces in which every VF is found; the first look does not end before `goes_on` is set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[set[PciAddress]] = []
        self.began, self.goes_on = threading.Event(), threading.Event()
        monkeypatch.setattr(orphan_netdevs, "find_orphans", self._find)

    def _find(self, vfs: Collection[PciAddress], root: Path) -> dict[PciAddress, OrphanNetdev]:
        self.asked.append(set(vfs))
        self.began.set()
        self.goes_on.wait(20)
        return dict.fromkeys(vfs, STRAY)


def test_who_asks_while_a_look_is_under_way_shares_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = Looks(monkeypatch)

    async def main() -> list[dict[PciAddress, OrphanNetdev]]:
        strays = OrphanSearch(Path("/"))
        asked = [asyncio.create_task(strays.find((FIRST,)))]
        await asyncio.to_thread(looks.began.wait, 20)
        asked += [asyncio.create_task(strays.find((vf,))) for vf in (FIRST, SECOND)]
        await asyncio.sleep(0)
        looks.goes_on.set()
        return await asyncio.gather(*asked)

    found = asyncio.run(main())

    assert looks.asked == [{FIRST}, {FIRST, SECOND}]
    assert found == [{FIRST: STRAY}, {FIRST: STRAY}, {SECOND: STRAY}]


def test_who_asks_after_a_look_that_failed_gets_another(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> dict[PciAddress, OrphanNetdev]:
        strays = OrphanSearch(Path("/"))
        with monkeypatch.context() as refused:
            refused.setattr(orphan_netdevs, "find_orphans", refuse)
            with pytest.raises(OSError, match="Too many open files"):
                await strays.find((FIRST,))
        Looks(monkeypatch).goes_on.set()
        return await strays.find((FIRST,))

    assert asyncio.run(main()) == {FIRST: STRAY}


def refuse(vfs: Collection[PciAddress], root: Path) -> dict[PciAddress, OrphanNetdev]:
    raise OSError(24, "Too many open files")


def test_nothing_is_looked_for_when_nothing_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = Looks(monkeypatch)

    assert asyncio.run(OrphanSearch(Path("/")).find(())) == {}
    assert looks.asked == []
