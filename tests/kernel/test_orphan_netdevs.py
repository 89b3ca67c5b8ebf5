"""VFs' netdevs are looked for in every namespace but our own; real namespaces are the node tier's."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from kernel import orphan_netdevs
from kernel.netlink.links import Link
from tests.vf.builders import FIRST, SECOND
from vf.orphans import OrphanNetdev
from vf.record import Netns
from vf.sandbox_difference import LinkState
from vf.steps import MoveLinkOut

ONE, OTHER, DYING = (Netns(f"/run/netns/{name}", 4, inode) for inode, name in enumerate(("one", "other", "dying"), 7))
HOME = -1  # our own namespace
ROOT = Path("/")


def a_link(ifname: str, parent: object = None, alias: str | None = None) -> Link:
    return Link(3, ifname, alias, None if parent is None else str(parent), None)


class There(NamedTuple):
    """`Links` of one namespace."""

    links: tuple[Link, ...]

    def listed(self) -> tuple[Link, ...]:
        return self.links


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Callable[[dict[int, list[Link]]], list[tuple[object, int | None]]]:
    """Give a node its links by the namespace's inode; what is detached is noted, with where."""

    def made(by_inode: dict[int, list[Link]]) -> list[tuple[object, int | None]]:
        @contextmanager
        def opened(root: Path, path: str, expected: orphan_netdevs.NetnsIdentity) -> Iterator[int | None]:
            yield expected.inode if expected.inode in by_inode else None

        @contextmanager
        def links(fd: int = HOME) -> Iterator[There]:
            yield There(tuple(by_inode[fd]))

        detached: list[tuple[object, int | None]] = []
        monkeypatch.setattr(orphan_netdevs, "namespaces", lambda root: (DYING, ONE, OTHER))
        monkeypatch.setattr(orphan_netdevs, "opened", opened)
        monkeypatch.setattr(orphan_netdevs, "links", links)
        monkeypatch.setattr(orphan_netdevs, "state", lambda there, ifindex: state(there.links[0].ifname))
        monkeypatch.setattr(orphan_netdevs.perform, "detach", lambda steps, fd: detached.append((*steps, fd)))
        return detached

    return made


def state(ifname: str) -> LinkState:
    return LinkState(ifname, "InfiniBand", 4092, up=True, addresses=frozenset())


def test_netdev_is_found_by_its_device_or_its_mark_and_says_what_it_was_called(node) -> None:
    node(
        {
            ONE.inode: [a_link("net1", FIRST, f"railnet {FIRST} ibs5v0")],
            OTHER.inode: [a_link("x", alias=f"railnet {SECOND}")],
        }
    )

    assert orphan_netdevs.find_orphans((FIRST, SECOND), ROOT) == {
        FIRST: OrphanNetdev(ONE, state("net1"), "ibs5v0"),
        SECOND: OrphanNetdev(OTHER, state("x"), None),
    }


def test_netdev_that_is_nowhere_is_not_found(node) -> None:
    node({ONE.inode: [a_link("net1")], OTHER.inode: []})

    assert orphan_netdevs.find_orphans((FIRST,), ROOT) == {}


def test_netdev_is_taken_home_from_where_it_is_and_another_is_left_alone(node) -> None:
    detached = node({ONE.inode: [a_link("net1", SECOND)], OTHER.inode: [a_link("x", FIRST)]})
    step = MoveLinkOut(FIRST, "ibs5v0")

    orphan_netdevs.take_home((step,), orphan_netdevs.find_orphans((FIRST,), ROOT), ROOT)

    assert detached == [(step, OTHER.inode)]


def test_names_at_home_are_those_that_are_written_on_netdevs(node) -> None:
    node({HOME: [a_link("net1", FIRST, f"railnet {FIRST} ibs5v0"), a_link("net2", SECOND)]})

    assert orphan_netdevs.names_at_home((FIRST, SECOND)) == {FIRST: "ibs5v0"}


def test_file_where_no_namespace_is_bound_our_own_and_processes_that_end_are_none(tmp_path: Path) -> None:
    (tmp_path / "run/netns").mkdir(parents=True)
    (tmp_path / "run/netns/stale").touch()
    (tmp_path / "proc/7/ns").mkdir(parents=True)
    (tmp_path / "proc/7/ns/net").symlink_to("/proc/self/ns/net")
    (tmp_path / "proc/8").mkdir()
    (tmp_path / "proc/self").mkdir()

    assert orphan_netdevs.namespaces(tmp_path) == ()


def test_host_without_bound_namespaces_has_those_of_its_processes(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "proc/7/ns").mkdir(parents=True)
    (tmp_path / "proc/7/ns/net").touch()
    facts = (tmp_path / "proc/7/ns/net").stat()
    monkeypatch.setattr(orphan_netdevs, "_OWN", str(tmp_path))  # another inode of the same device

    assert tmp_path.stat().st_dev == facts.st_dev
    assert orphan_netdevs.namespaces(tmp_path) == (Netns("/proc/7/ns/net", facts.st_dev, facts.st_ino),)


def test_host_whose_processes_cannot_be_seen_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        orphan_netdevs.namespaces(tmp_path)
