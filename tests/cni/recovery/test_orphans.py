"""Free VFs whose netdev is not on the node: the record is rebuilt, the driver bound again, or the VF withheld with a reason."""

import asyncio
import os
import shutil
import threading
from collections.abc import Iterator
from dataclasses import replace
from ipaddress import ip_interface
from pathlib import Path

import pytest

from cni.attachment import netdev_return
from railnet.kernel.namespaces import orphan_netdev_return
from railnet.kernel.sysfs.functions import Sysfs
from railnet.vf.orphan_rescue import OrphanNetdev
from railnet.vf.pci_address import PciAddress
from railnet.vf.record import Netns, Record
from railnet.vf.sandbox_difference import SandboxLink
from railnet.vf.steps import ProbeAgain, RenameLink, ResetLink
from railnet.vf.vf_table import Owner
from tests.cni.attachment_node import VF, Node, a_node, attached, planned
from tests.railnet.kernel.tree import ON_NODE, PF

NETNS = Netns("/run/netns/cni-9", 4, 4026532399)
NET1 = SandboxLink("net1", "InfiniBand", 4092, up=True, addresses=frozenset({ip_interface("10.56.3.1/16")}))
ORPHAN = {VF: OrphanNetdev(NETNS, NET1, "ibs5v0")}


class Searching:
    """A daemon that has run for a while, on a node whose namespaces and clock are the test's."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.searches = 0
        self.orphans: dict[object, OrphanNetdev] = {}
        self.pods: dict[PciAddress, str] | None = {}
        self.now = 1000.0
        self._daemon = node.daemon(pods=self.pods_of_kubelet, now=lambda: self.now)
        self.attachments, self.claims, self.recovery = (
            self._daemon.attachments,
            self._daemon.claims,
            self._daemon.recovery,
        )
        self.others = frozenset(vf.address for vf in node.table.inventory.vfs()) - {VF}
        for number, other in enumerate(sorted(self.others)):
            node.table.claim(other, Owner(f"other-{number}", "eth0", ""))

    async def pods_of_kubelet(self) -> dict[PciAddress, str] | None:
        return self.pods

    def find_orphans(self, vfs: object, root: Path) -> dict[object, OrphanNetdev]:
        self.searches += 1
        return self.orphans

    def find(self, seconds: float = 10.0) -> None:
        """Let some seconds pass, then find orphans."""
        self.now += seconds
        asyncio.run(asyncio.wait_for(self.recovery.find_orphans(), 20))

    def was_taken_back(self) -> None:
        """Have the VF taken back from an ended sandbox whose pod kubelet may still list."""
        owner = Owner("ended", "eth0", "")
        self.node.table.claim(VF, owner)
        self.claims.release_ended((VF,), owner)

    def sweep(self) -> None:
        asyncio.run(asyncio.wait_for(self.recovery.sweep(), 20))

    @property
    def reason(self) -> str | None:
        return self.node.table.withheld(VF)


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    return a_node(tmp_path, monkeypatch)


@pytest.fixture
def daemon(node: Node, monkeypatch: pytest.MonkeyPatch) -> Iterator[Searching]:
    daemon = Searching(node)
    monkeypatch.setattr(orphan_netdev_return, "find_orphans", daemon.find_orphans)
    node.netdev_is(None)
    node.table.refresh(node.sysfs.inventory())
    yield daemon
    assert daemon.others <= node.table.owned()  # whatever happens to one VF


def test_no_search_begins_while_every_free_vf_is_on_the_node(daemon: Searching) -> None:
    daemon.node.netdev_is("ibs5v0")

    daemon.find()

    assert (daemon.searches, daemon.reason) == (0, None)


def test_record_of_a_namespace_without_one_is_rebuilt_with_its_address_and_owns_the_vf(daemon: Searching) -> None:
    daemon.orphans, daemon.pods = ORPHAN, {VF: "uid-7"}

    daemon.find()

    record = daemon.node.journal.holder(VF)
    assert record.netns == NETNS
    assert daemon.attachments.attached(VF) == Owner("unknown-4026532399", "eth0", "uid-7")
    assert ip_interface("10.56.3.1/16").ip in daemon.node.journal.addresses()
    assert (daemon.attachments.rebuilt(NETNS, "eth0"), daemon.reason) == (record, None)
    assert daemon.attachments.rebuilt(NETNS, "other") is None


def test_vf_in_a_namespace_of_an_unknown_pod_is_withheld_until_it_is_back(daemon: Searching) -> None:
    daemon.orphans = ORPHAN
    alive = NETNS._replace(path="/run/netns/cni-1", **identity_of(daemon.node))
    daemon.orphans = {VF: OrphanNetdev(alive, NET1, None)}
    daemon.find()
    said = daemon.reason

    daemon.node.netdev_is("ibs5v0")
    daemon.sweep()
    daemon.find()

    assert "is in network namespace /run/netns/cni-1" in said
    assert (daemon.node.journal.holder(VF), daemon.node.table.owner(VF), daemon.reason) == (None, None, None)


def test_vf_that_came_back_while_it_was_taken_back_from_an_unknown_pod_is_free_and_not_changed(
    daemon: Searching,
) -> None:
    alive = NETNS._replace(path="/run/netns/cni-1", **identity_of(daemon.node))
    daemon.orphans = {VF: OrphanNetdev(alive, NET1, None)}
    daemon.find()
    daemon.node.journal.write(replace(daemon.node.journal.holder(VF), stage="detaching"))  # a DEL that failed

    daemon.node.netdev_is("ibs5v0")
    daemon.sweep()

    assert (list(daemon.node.journal.records()), daemon.node.table.owner(VF)) == ([], None)
    assert daemon.node.kernel.steps == []


def test_pod_that_kubelet_still_lists_for_a_vf_that_was_taken_back_does_not_own_it(daemon: Searching) -> None:
    daemon.was_taken_back()
    daemon.orphans, daemon.pods = ORPHAN, {VF: "uid-of-the-dead"}

    daemon.find()

    assert daemon.node.table.owner(VF).pod_uid == ""
    assert "neither a record nor kubelet names its pod" in daemon.reason


@pytest.mark.parametrize("meanwhile", ["claimed", "back"])
def test_vf_that_was_claimed_or_came_back_during_the_search_is_no_orphan(
    daemon: Searching, monkeypatch, meanwhile: str
) -> None:
    taker = Owner("f00", "eth0", "uid-2")

    def find_orphans(vfs: object, root: Path) -> dict[object, OrphanNetdev]:
        daemon.node.table.claim(VF, taker) if meanwhile == "claimed" else daemon.node.netdev_is("ibs5v0")
        return ORPHAN

    monkeypatch.setattr(orphan_netdev_return, "find_orphans", find_orphans)
    daemon.find()

    assert daemon.node.journal.holder(VF) is None
    assert daemon.node.table.owner(VF) == (taker if meanwhile == "claimed" else None)


def test_record_of_a_sandbox_with_a_request_is_not_rebuilt(daemon: Searching) -> None:
    daemon.orphans = ORPHAN

    async def main() -> None:
        async with daemon.node.sandboxes.held("unknown-4026532399@eth0"):
            await daemon.recovery.find_orphans()

    asyncio.run(main())

    assert daemon.node.journal.holder(VF) is None


def test_vf_that_a_rebuilt_record_lacks_is_added_though_another_vf_of_it_has_another_owner(
    daemon: Searching, caplog: pytest.LogCaptureFixture
) -> None:
    daemon.orphans = ORPHAN
    daemon.find()
    (record,) = daemon.node.journal.records()
    twice = min(daemon.others)  # a VF of two records: the other record was read first
    daemon.node.journal.write(replace(record, attachments=(replace(record.attachments[0], vf=twice),)))
    daemon.node.table.release(VF, Owner(record.container_id, "eth0", ""))

    daemon.find()

    assert daemon.node.table.owner(VF).container_id == record.container_id
    assert f"VF {twice} belongs to sandbox other-0" in caplog.text


def test_absent_vf_is_bound_again_once_it_cannot_be_on_its_way(daemon: Searching) -> None:
    daemon.find()
    first = list(daemon.node.kernel.steps), daemon.reason
    daemon.node.kernel.then = lambda: daemon.node.netdev_is("ibs5v0")
    daemon.find()

    assert first[0] == []
    assert "is bound again in a few seconds" in first[1]
    assert daemon.node.kernel.steps == [ProbeAgain(VF, "mlx5_core")]
    assert (daemon.reason, daemon.node.table.inventory.vf(VF).netdev is not None) == (None, True)


def test_vf_that_stays_absent_is_bound_again_twice_then_withheld_and_searched_once_a_minute(daemon: Searching) -> None:
    for _ in range(4):
        daemon.find()
    searches = daemon.searches
    for _ in range(5):
        daemon.find()

    assert daemon.node.kernel.steps == [ProbeAgain(VF, "mlx5_core")] * 2
    assert "was bound again 2 times: dmesg says why" in daemon.reason
    assert daemon.searches - searches <= 1


def test_vf_whose_pf_has_no_netdev_either_is_searched_once_a_minute(daemon: Searching) -> None:
    shutil.rmtree(daemon.node.tree.devices / PF / "net")
    daemon.node.table.refresh(daemon.node.sysfs.inventory())

    for _ in range(9):
        daemon.find()

    assert daemon.node.kernel.steps == []
    assert "neither has its PF: modprobe ib_ipoib" in str(daemon.reason)
    assert daemon.searches <= 3


def test_bind_that_is_refused_counts_as_a_try_and_the_daemon_goes_on(daemon: Searching) -> None:
    daemon.node.kernel.refuses = OSError(16, "busy")

    for _ in range(5):
        daemon.find()

    assert "was bound again 2 times" in daemon.reason


@pytest.mark.slow
def test_bind_that_hangs_holds_up_no_bind_of_another_card_and_ends_in_its_time(
    daemon: Searching, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(netdev_return, "_PROBE_SECONDS", 5.0)
    other, alive = daemon.node.add_card(), threading.Event()
    shutil.rmtree(daemon.node.tree.devices / str(other) / "net")
    daemon.node.table.refresh(daemon.node.sysfs.inventory())
    bound, beside = threading.Event(), list[bool]()

    def probe_again(step: ProbeAgain, sysfs: Sysfs) -> None:
        if step.vf == other:
            bound.set()
        else:
            beside.append(bound.wait(4.0))
            alive.wait(60)  # `find` gives up after 20

    monkeypatch.setattr(daemon.node.kernel, "probe_again", probe_again)
    for _ in range(4):
        daemon.find()
    alive.set()

    assert beside == [True]  # the other card's driver was bound while this bind hung, and this one was begun once
    assert f"what was written to the files of {PF} has not been done in 5 s" in caplog.text
    assert "was bound again 2 times" in daemon.reason


@pytest.mark.parametrize("pods", [{VF: "uid-7"}, None], ids=["kubelet lists it", "not known"])
def test_vf_that_a_pod_may_use_is_never_bound_again(daemon: Searching, pods) -> None:
    daemon.pods = pods

    for _ in range(9):
        daemon.find()

    assert daemon.node.kernel.steps == []
    assert daemon.searches <= 3


def test_vf_whose_pod_has_surely_ended_is_bound_again_though_kubelet_lists_it(daemon: Searching) -> None:
    daemon.pods = {VF: "uid-7"}
    daemon.was_taken_back()

    daemon.find()
    daemon.find()

    assert daemon.node.kernel.steps == [ProbeAgain(VF, "mlx5_core")]


def test_search_that_the_kernel_refuses_is_logged_and_tried_again(daemon: Searching, monkeypatch, caplog) -> None:
    def find_orphans(vfs: object, root: Path) -> dict[object, OrphanNetdev]:
        raise OSError(24, "Too many open files")

    with monkeypatch.context() as refused:
        refused.setattr(orphan_netdev_return, "find_orphans", find_orphans)
        daemon.find()
    daemon.orphans = ORPHAN
    daemon.find()

    assert "the search for VFs that are not on the node failed" in caplog.text
    assert daemon.node.table.owner(VF) is not None


@pytest.mark.parametrize(("written", "steps"), [({VF: "ibs5v0"}, [RenameLink(31, "ibs5v0")]), ({}, [])])
def test_free_netdev_with_a_pods_name_gets_the_name_that_is_written_on_it(
    daemon: Searching, monkeypatch, written, steps
) -> None:
    monkeypatch.setattr(orphan_netdev_return, "written_names", lambda vfs: written)
    daemon.node.netdev_is("net1")
    daemon.node.table.refresh(daemon.node.sysfs.inventory())

    daemon.find()

    assert daemon.node.kernel.steps == steps


def test_netdev_that_its_del_did_not_find_gets_its_name_and_settings_before_a_pod_gets_it(daemon: Searching) -> None:
    """On the real kernel: a namespace took longer to end than the DEL waits, or a pod hid the netdev."""
    node = daemon.node
    node.netdev_is("ibs5v0")
    record = replace(node.run(attached), stage="attached")
    before = {"mtu": 2044}
    recorded = replace(record, attachments=(replace(record.attachments[0], before=before),))
    node.netdev_is(None)
    node.kernel.steps.clear()

    async def take_back() -> None:
        await daemon.attachments.detach(recorded, None)

    asyncio.run(take_back())
    withheld = [daemon.reason]
    node.netdev_is("evil")
    node.table.refresh(node.sysfs.inventory())
    withheld.append(daemon.reason)
    node.kernel.then = lambda: node.netdev_is("ibs5v0")
    daemon.find()

    assert all(reason is not None and "was taken back from a pod without its netdev" in reason for reason in withheld)
    assert node.kernel.steps[-1] == RenameLink(31, "ibs5v0")
    assert node.kernel.resets == [ResetLink(VF, 31, before)]
    assert (node.table.inventory.vf(VF).netdev.name, daemon.reason) == ("ibs5v0", None)


def test_free_netdev_whose_vf_is_claimed_meanwhile_is_not_renamed_and_not_reset(
    daemon: Searching, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two VFs have come back under a pod's name. An ADD claims the second one while the sweep renames the first one."""
    node, other = daemon.node, daemon.node.add_card()
    monkeypatch.setattr(orphan_netdev_return, "written_names", lambda vfs: {VF: "ibs5v0", other: "ibs6v0"})
    node.netdev_is("net1")
    (node.tree.devices / str(other) / "net").rename(node.tree.devices / str(other) / "was")
    shutil.copytree(node.tree.devices / ON_NODE / "net", node.tree.devices / str(other) / "net")
    node.table.refresh(node.sysfs.inventory())
    first, second = sorted((VF, other))

    def claim() -> None:
        node.table.claim(second, Owner("f00", "eth0", "uid-2"))
        node.kernel.then = lambda: None

    node.kernel.then = claim
    daemon.find()

    assert node.kernel.steps == [RenameLink(31, {VF: "ibs5v0", other: "ibs6v0"}[first])]
    assert [step.vf for step in node.kernel.resets] == [first]


def test_add_waits_for_the_sweep_that_renames_its_vf(daemon: Searching, monkeypatch: pytest.MonkeyPatch) -> None:
    node, begun, goes_on = daemon.node, threading.Event(), threading.Event()
    monkeypatch.setattr(orphan_netdev_return, "written_names", lambda vfs: {VF: "ibs5v0"})
    node.netdev_is("net1")
    node.table.refresh(node.sysfs.inventory())

    def rename_slowly() -> None:
        begun.set()
        assert goes_on.wait(10)
        node.netdev_is("ibs5v0")

    node.kernel.then = rename_slowly

    async def main() -> Record:
        netns_fd = os.open(node.netns, os.O_RDONLY)
        try:
            sweep = asyncio.create_task(daemon.recovery.find_orphans())
            await asyncio.to_thread(begun.wait, 10)
            claimed = asyncio.Event()
            node.table.observe(claimed.set)
            add = asyncio.create_task(planned(daemon.attachments, netns_fd))
            await claimed.wait()
            _, waiting = await asyncio.wait({add}, timeout=0.2)
            assert waiting == {add}
            goes_on.set()
            await sweep
            return await add
        finally:
            os.close(netns_fd)

    record = asyncio.run(asyncio.wait_for(main(), 20))

    assert record.attachments[0].host_ifname == "ibs5v0"
    assert node.kernel.steps == [RenameLink(31, "ibs5v0")]
    assert node.kernel.resets == [ResetLink(VF, 31, {})]


def test_record_that_add_wrote_keeps_a_vf_whose_netdev_is_on_the_node(node: Node) -> None:
    record = replace(node.run(attached), stage="attached")
    node.netdev_is("net1")

    node.sweep()

    assert node.journal.get(record.key) == record


def identity_of(node: Node) -> dict[str, int]:
    facts = node.netns.stat()
    return {"dev": facts.st_dev, "inode": facts.st_ino}
