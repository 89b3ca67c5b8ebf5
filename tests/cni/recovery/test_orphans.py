"""VFs that are free and not on the node: owned again, bound anew, or withheld with a reason."""

import asyncio
import shutil
from collections.abc import Iterator
from dataclasses import replace
from ipaddress import ip_interface
from pathlib import Path

import pytest

from cni.recovery.sweep import Recovery
from kernel import orphan_netdevs
from tests.cni.railway import VF, Node, a_node, attached
from tests.kernel.tree import PF
from vf.orphans import OrphanNetdev
from vf.record import Netns
from vf.sandbox_difference import LinkState
from vf.steps import ProbeAgain, RenameLink
from vf.table import Owner

NETNS = Netns("/run/netns/cni-9", 4, 4026532399)
NET1 = LinkState("net1", "InfiniBand", 4092, up=True, addresses=frozenset({ip_interface("10.56.3.1/16")}))
STRAY = {VF: OrphanNetdev(NETNS, NET1, "ibs5v0")}


class Daemon:
    """A daemon that has run for a while, on a node whose namespaces and clock are the test's."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.looks = 0
        self.strays: dict[object, OrphanNetdev] = {}
        self.pods: dict[object, str] | None = {}
        self.now = 1000.0
        self.rails = node.rails()
        self._recovery = Recovery(self.rails, lambda: self.pods, lambda: self.now)
        self.others = frozenset(vf.address for vf in node.table.inventory.vfs()) - {VF}
        for number, other in enumerate(sorted(self.others)):
            node.table.claim(other, Owner(f"other-{number}", "eth0", ""))

    def find_orphans(self, vfs: object, root: Path) -> dict[object, OrphanNetdev]:
        self.looks += 1
        return self.strays

    def look(self, seconds: float = 10.0) -> None:
        """Let some seconds pass, then look."""
        self.now += seconds
        asyncio.run(asyncio.wait_for(self._recovery.look(), 20))

    def sweep(self) -> None:
        asyncio.run(asyncio.wait_for(self._recovery.sweep(), 20))

    @property
    def reason(self) -> str | None:
        return self.node.table.withheld(VF)


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    return a_node(tmp_path, monkeypatch)


@pytest.fixture
def daemon(node: Node, monkeypatch: pytest.MonkeyPatch) -> Iterator[Daemon]:
    daemon = Daemon(node)
    monkeypatch.setattr(orphan_netdevs, "find_orphans", daemon.find_orphans)
    node.netdev_is(None)
    node.table.refresh(node.sysfs.inventory())
    yield daemon
    assert daemon.others <= node.table.owned()  # whatever happens to one VF


def test_nothing_is_looked_for_while_every_free_vf_is_at_home(daemon: Daemon) -> None:
    daemon.node.netdev_is("ibs5v0")

    daemon.look()

    assert (daemon.looks, daemon.reason) == (0, None)


def test_vf_in_a_namespace_without_a_record_is_owned_and_written_down_with_its_address(daemon: Daemon) -> None:
    daemon.strays, daemon.pods = STRAY, {VF: "uid-7"}

    daemon.look()

    record = daemon.node.journal.holder(VF)
    assert record.netns == NETNS
    assert daemon.rails.attached(VF) == Owner("unknown-4026532399", "eth0", "uid-7")
    assert ip_interface("10.56.3.1/16").ip in daemon.node.journal.addresses()
    assert (daemon.rails.adopted(NETNS, "eth0"), daemon.reason) == (record, None)
    assert daemon.rails.adopted(NETNS, "other") is None


def test_vf_in_a_namespace_that_kubelet_knows_no_pod_of_is_withheld_until_it_is_back(daemon: Daemon) -> None:
    daemon.strays = STRAY
    alive = NETNS._replace(path="/run/netns/cni-1", **identity_of(daemon.node))
    daemon.strays = {VF: OrphanNetdev(alive, NET1, None)}
    daemon.look()
    said = daemon.reason

    daemon.node.netdev_is("ibs5v0")
    daemon.sweep()
    daemon.look()

    assert "is in network namespace /run/netns/cni-1" in said
    assert (daemon.node.journal.holder(VF), daemon.node.table.owner(VF), daemon.reason) == (None, None, None)


def test_vf_that_came_back_while_it_was_taken_back_from_a_namespace_of_nobodys_is_free_and_nothing_is_done_to_it(
    daemon: Daemon,
) -> None:
    alive = NETNS._replace(path="/run/netns/cni-1", **identity_of(daemon.node))
    daemon.strays = {VF: OrphanNetdev(alive, NET1, None)}
    daemon.look()
    daemon.node.journal.write(replace(daemon.node.journal.holder(VF), stage="detaching"))  # a DEL that failed

    daemon.node.netdev_is("ibs5v0")
    daemon.sweep()

    assert (list(daemon.node.journal.records()), daemon.node.table.owner(VF)) == ([], None)
    assert daemon.node.kernel.steps == []


def test_pod_that_kubelet_still_lists_for_a_vf_that_was_taken_back_is_not_its_holder(daemon: Daemon) -> None:
    daemon.rails.taken_back.add(VF)
    daemon.strays, daemon.pods = STRAY, {VF: "uid-of-the-dead"}

    daemon.look()

    assert daemon.node.table.owner(VF).pod_uid == ""
    assert "neither a record nor kubelet knows for whom" in daemon.reason


@pytest.mark.parametrize("meanwhile", ["claimed", "back"])
def test_vf_that_a_request_has_claimed_or_that_is_back_meanwhile_is_no_stray(
    daemon: Daemon, monkeypatch, meanwhile: str
) -> None:
    taker = Owner("f00", "eth0", "uid-2")

    def find_orphans(vfs: object, root: Path) -> dict[object, OrphanNetdev]:
        daemon.node.table.claim(VF, taker) if meanwhile == "claimed" else daemon.node.netdev_is("ibs5v0")
        return STRAY

    monkeypatch.setattr(orphan_netdevs, "find_orphans", find_orphans)
    daemon.look()

    assert daemon.node.journal.holder(VF) is None
    assert daemon.node.table.owner(VF) == (taker if meanwhile == "claimed" else None)


def test_record_that_a_request_is_at_is_not_made_again_by_then(daemon: Daemon) -> None:
    daemon.strays = STRAY

    async def main() -> None:
        async with daemon.rails.one_at_a_time.held("unknown-4026532399@eth0"):
            await Recovery(daemon.rails).look()

    asyncio.run(main())

    assert daemon.node.journal.holder(VF) is None


def test_namespace_that_has_a_vf_more_than_its_record_gets_it_though_another_of_that_record_is_somebody_elses(
    daemon: Daemon, caplog: pytest.LogCaptureFixture
) -> None:
    daemon.strays = STRAY
    daemon.look()
    (record,) = daemon.node.journal.records()
    twice = min(daemon.others)  # of two records, the other one was read first
    daemon.node.journal.write(replace(record, attachments=(replace(record.attachments[0], vf=twice),)))
    daemon.node.table.release(VF, Owner(record.container_id, "eth0", ""))

    daemon.look()

    assert daemon.node.table.owner(VF).container_id == record.container_id
    assert f"VF {twice} belongs to sandbox other-0" in caplog.text


def test_vf_that_is_nowhere_is_bound_anew_once_it_cannot_be_on_its_way(daemon: Daemon) -> None:
    daemon.look()
    first = list(daemon.node.kernel.steps), daemon.reason
    daemon.node.kernel.then = lambda: daemon.node.netdev_is("ibs5v0")
    daemon.look()

    assert first[0] == []
    assert "is bound again in a few seconds" in first[1]
    assert daemon.node.kernel.steps == [ProbeAgain(VF, "mlx5_core")]
    assert (daemon.reason, daemon.node.table.inventory.vf(VF).netdev is not None) == (None, True)


def test_vf_that_stays_away_is_bound_anew_twice_then_says_so_and_is_looked_for_once_a_minute(daemon: Daemon) -> None:
    for _ in range(4):
        daemon.look()
    looks = daemon.looks
    for _ in range(5):
        daemon.look()

    assert daemon.node.kernel.steps == [ProbeAgain(VF, "mlx5_core")] * 2
    assert "was bound again 2 times: dmesg says why" in daemon.reason
    assert daemon.looks - looks <= 1


def test_vf_whose_pf_has_no_netdev_either_is_looked_for_once_a_minute(daemon: Daemon) -> None:
    shutil.rmtree(daemon.node.tree.devices / PF / "net")
    daemon.node.table.refresh(daemon.node.sysfs.inventory())

    for _ in range(9):
        daemon.look()

    assert daemon.node.kernel.steps == []
    assert "neither has its PF: modprobe ib_ipoib" in str(daemon.reason)
    assert daemon.looks <= 3


def test_bind_that_is_refused_counts_as_a_try_and_the_daemon_goes_on(daemon: Daemon) -> None:
    daemon.node.kernel.refuses = OSError(16, "busy")

    for _ in range(5):
        daemon.look()

    assert "was bound again 2 times" in daemon.reason


@pytest.mark.parametrize("pods", [{VF: "uid-7"}, None], ids=["kubelet lists it", "nobody knows"])
def test_vf_that_a_pod_may_use_is_never_bound_anew(daemon: Daemon, pods) -> None:
    daemon.pods = pods

    for _ in range(9):
        daemon.look()

    assert daemon.node.kernel.steps == []
    assert daemon.looks <= 3


def test_vf_whose_pod_has_surely_ended_is_bound_anew_though_kubelet_lists_it(daemon: Daemon) -> None:
    daemon.pods = {VF: "uid-7"}
    daemon.rails.taken_back.add(VF)

    daemon.look()
    daemon.look()

    assert daemon.node.kernel.steps == [ProbeAgain(VF, "mlx5_core")]


def test_look_that_the_kernel_refuses_is_told_and_tried_again(daemon: Daemon, monkeypatch, caplog) -> None:
    def find_orphans(vfs: object, root: Path) -> dict[object, OrphanNetdev]:
        raise OSError(24, "Too many open files")

    with monkeypatch.context() as refused:
        refused.setattr(orphan_netdevs, "find_orphans", find_orphans)
        daemon.look()
    daemon.strays = STRAY
    daemon.look()

    assert "cannot be looked for" in caplog.text
    assert daemon.node.table.owner(VF) is not None


@pytest.mark.parametrize(("written", "steps"), [({VF: "ibs5v0"}, [RenameLink(31, "ibs5v0")]), ({}, [])])
def test_free_netdev_under_a_pods_name_gets_the_one_that_is_written_on_it(
    daemon: Daemon, monkeypatch, written, steps
) -> None:
    monkeypatch.setattr(orphan_netdevs, "names_at_home", lambda vfs: written)
    daemon.node.netdev_is("net1")
    daemon.node.table.refresh(daemon.node.sysfs.inventory())

    daemon.look()

    assert daemon.node.kernel.steps == steps


def test_record_that_add_wrote_is_never_let_go_for_a_netdev_that_is_back(node: Node) -> None:
    record = replace(node.run(attached), stage="attached")
    node.netdev_is("net1")

    node.sweep()

    assert node.journal.get(record.key) == record


def identity_of(node: Node) -> dict[str, int]:
    facts = node.netns.stat()
    return {"dev": facts.st_dev, "inode": facts.st_ino}
