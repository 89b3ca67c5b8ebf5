"""Two records name one VF: the record whose sandbox has the VF stays, and the other goes to quarantine."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from cni.attachment.journal import Journal
from cni.attachment.netdev_return import NodeNetdevs
from cni.recovery.contested_vfs import ContestedVfs
from cni.recovery.namespace_observation import Observed
from cni.recovery.rules import NamespaceState
from railnet.vf.orphan_rescue import OrphanNetdev
from railnet.vf.record import Record
from railnet.vf.sandbox_difference import SandboxLink
from tests.cni.attachment_node import Node, a_node, planned


class Namespaces:
    """Namespaces of which some are alive, by the container's id; one may be at another path than its record says."""

    def __init__(self, *alive: str, moved: str = "") -> None:
        self._alive, self._moved = alive, moved

    async def observe(self, record: Record) -> Observed:
        if record.container_id == self._moved:
            return Observed(NamespaceState.MOVED, record.netns)
        return Observed(NamespaceState.ALIVE if record.container_id in self._alive else NamespaceState.GONE)


class Netdevs(NodeNetdevs):
    """Finds a VF's netdev in the namespace of one record, or nowhere."""

    def __init__(self, holder: Record | None) -> None:
        self._holder = holder

    async def find_orphans(self, vfs):
        return {} if self._holder is None else dict.fromkeys(vfs, OrphanNetdev(self._holder.netns, NET1, None))


NET1 = SandboxLink("net1", "InfiniBand", 4092, up=True, addresses=frozenset())


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    return a_node(tmp_path, monkeypatch)


@pytest.fixture
def two(node: Node) -> tuple[Record, Record]:
    """Write two records of one VF: of `a`, and of `z`, which is the newer."""
    first = node.run(planned)
    node.journal.remove(first)
    records = tuple(
        replace(first, container_id=name, netns=first.netns._replace(inode=inode))
        for name, inode in (("a", 1), ("z", 2))
    )
    for record in records:
        node.journal.write(record)
    return records


def settled(node: Node, namespaces: Namespaces, holder: Record | None) -> list[str]:
    asyncio.run(ContestedVfs(node.journal, namespaces, Netdevs(holder)).settle())
    return [record.container_id for record in node.journal.records()]


@pytest.mark.parametrize("right", [0, 1])
def test_record_of_the_namespace_that_has_the_netdev_wins(node: Node, two, right: int) -> None:
    assert settled(node, Namespaces("a", "z"), two[right]) == [two[right].container_id]
    assert [path.name for path in node.journal.quarantined()] == [f"{two[1 - right].key}.json"]
    assert [lost.container_id for lost in node.journal.lost_records] == [two[1 - right].container_id]


@pytest.mark.parametrize(("right", "old"), [("a", "z"), ("z", "a")])
def test_record_wins_whose_path_leads_to_the_namespace_when_both_name_its_inode(
    node: Node, two, right: str, old: str
) -> None:
    """The namespace of an old record has ended, and the kernel has given its inode to the namespace of the running pod."""
    (first, second) = (replace(record, netns=record.netns._replace(inode=1)) for record in two)
    for record in (first, second):
        node.journal.write(record)

    assert settled(node, Namespaces(right, moved=old), first) == [right]


def test_record_of_a_living_namespace_wins_when_no_namespace_has_the_netdev(node: Node, two) -> None:
    assert settled(node, Namespaces("a"), None) == ["a"]


def test_newest_record_wins_when_both_namespaces_are_gone(node: Node, two) -> None:
    assert settled(node, Namespaces(), None) == ["z"]


def test_records_of_different_vfs_stay(node: Node) -> None:
    node.run(planned)

    assert settled(node, Namespaces(), None) == ["c0ffee"]


def test_quarantine_keeps_a_hundred_files_and_the_one_that_comes_now(
    node: Node, two, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if all came within one tick of the clock, so that the new one need not be the last."""
    folder = node.folder / "quarantine"
    for number in range(120):
        (folder / f"{number}.json").touch()
    found = Journal.quarantined
    monkeypatch.setattr(
        Journal, "quarantined", lambda journal: tuple(sorted(found(journal), key=lambda path: path.stem != "z@eth0"))
    )

    settled(node, Namespaces("a", "z"), two[0])

    assert len(node.journal.quarantined()) == 100
    assert (folder / "z@eth0.json").exists()
