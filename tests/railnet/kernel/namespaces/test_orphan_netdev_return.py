"""VFs' netdevs are searched in every namespace but the node's; real namespaces are the node tier's."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from railnet.kernel import vf_netdev_recognition
from railnet.kernel.namespaces import orphan_netdev_return
from railnet.kernel.netlink.rtnetlink import Link
from railnet.vf.orphan_rescue import OrphanNetdev
from railnet.vf.record import Netns
from railnet.vf.sandbox_difference import SandboxLink
from railnet.vf.steps import MoveLinkOut
from tests.railnet.vf.builders import FIRST, SECOND

ONE, OTHER, DYING = (Netns(f"/run/netns/{name}", 4, inode) for inode, name in enumerate(("one", "other", "dying"), 7))
NODE = -1  # the node's own namespace
ROOT = Path("/")


def a_link(ifname: str, parent: object = None, alias: str | None = None) -> Link:
    return Link(3, ifname, alias, None if parent is None else str(parent), None)


class There(NamedTuple):
    """`Links` of one namespace."""

    links: tuple[Link, ...]

    def listed(self, wanted: Callable[[Link], bool]) -> tuple[Link, ...]:
        return tuple(filter(wanted, self.links))

    def bus_info(self, link: Link) -> str | None:
        return None


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Callable[[dict[int, list[Link]]], list[tuple[object, int | None]]]:
    """Make a node of links by their namespace's inode; note what is detached and from where."""

    def made(by_inode: dict[int, list[Link]]) -> list[tuple[object, int | None]]:
        @contextmanager
        def opened(root: Path, path: str, expected: orphan_netdev_return.NetnsIdentity) -> Iterator[int | None]:
            yield expected.inode if expected.inode in by_inode else None

        def namespaces(root: Path, passed_over: tuple[type[OSError], ...]) -> Iterator[tuple[Netns, int]]:
            yield from ((netns, netns.inode) for netns in (DYING, ONE, OTHER))

        @contextmanager
        def links(fd: int = NODE) -> Iterator[There]:
            if fd not in by_inode:
                raise OSError(22, "Invalid argument")
            yield There(tuple(by_inode[fd]))

        detached: list[tuple[object, int | None]] = []
        monkeypatch.setattr(vf_netdev_recognition, "_kinds", list(vf_netdev_recognition.kinds_without_device("5.13.0")))
        monkeypatch.setattr(orphan_netdev_return, "namespaces", namespaces)
        monkeypatch.setattr(orphan_netdev_return, "opened", opened)
        monkeypatch.setattr(orphan_netdev_return, "links", links)
        monkeypatch.setattr(orphan_netdev_return, "state", lambda there, ifindex: state(there.links[0].ifname))
        monkeypatch.setattr(orphan_netdev_return.perform, "detach", lambda steps, fd: detached.append((*steps, fd)))
        return detached

    return made


def state(ifname: str) -> SandboxLink:
    return SandboxLink(ifname, "InfiniBand", 4092, up=True, addresses=frozenset())


def test_netdev_is_found_by_its_device_or_its_mark_with_its_name_on_the_node(node) -> None:
    node(
        {
            ONE.inode: [a_link("net1", FIRST, f"railnet {FIRST} ibs5v0")],
            OTHER.inode: [a_link("x", alias=f"railnet {SECOND}")],
        }
    )

    assert orphan_netdev_return.find_orphans((FIRST, SECOND), ROOT) == {
        FIRST: OrphanNetdev(ONE, state("net1"), "ibs5v0"),
        SECOND: OrphanNetdev(OTHER, state("x"), None),
    }


def test_netdev_that_is_in_no_namespace_is_not_found(node) -> None:
    node({ONE.inode: [a_link("net1")], OTHER.inode: []})

    assert orphan_netdev_return.find_orphans((FIRST,), ROOT) == {}


def test_netdev_is_moved_from_its_namespace_and_another_is_left_alone(node) -> None:
    detached = node({ONE.inode: [a_link("net1", SECOND)], OTHER.inode: [a_link("x", FIRST)]})
    step = MoveLinkOut(FIRST, "ibs5v0")

    orphan_netdev_return.move_to_node((step,), orphan_netdev_return.find_orphans((FIRST,), ROOT), ROOT)

    assert detached == [(step, OTHER.inode)]


def test_names_that_are_written_on_netdevs_are_read(node) -> None:
    node({NODE: [a_link("net1", FIRST, f"railnet {FIRST} ibs5v0"), a_link("net2", SECOND)]})

    assert orphan_netdev_return.written_names((FIRST, SECOND)) == {FIRST: "ibs5v0"}
