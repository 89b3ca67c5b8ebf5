"""What sandboxes left behind: owned again at start, and taken back by the sweep."""

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from cni.attachment.attachments import Attachments
from cni.recovery import sweep
from railnet.kernel import waiting
from railnet.kernel.namespaces import orphan_netdev_return
from railnet.vf.orphan_rescue import OrphanNetdev
from railnet.vf.pci_address import PciAddress
from railnet.vf.record import Record
from railnet.vf.sandbox_difference import SandboxLink
from railnet.vf.steps import RenameLink
from railnet.vf.vf_table import Owner, VfTable
from tests.cni.attachment_node import KEY, NO_DRIVER, VF, Node, a_node, attached, planned
from tests.railnet.kernel.tree import IN_POD
from tests.railnet.vf.builders import an_attachment

NET1 = SandboxLink("net1", "InfiniBand", 4092, up=True, addresses=frozenset())


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    return a_node(tmp_path, monkeypatch)


def test_start_claims_the_vfs_of_the_journal(node: Node) -> None:
    node.run(attached)
    node.table = VfTable(node.sysfs.inventory())

    async def main(attachments: Attachments, _: int) -> None:
        node.daemon().repair.own_recorded()

    node.run(main)

    assert node.table.owner(VF) == Owner("c0ffee", "eth0", "uid-1")


def test_start_goes_on_when_two_records_name_one_vf(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    first = node.run(planned)
    node.journal.write(
        replace(first, container_id="f00", attachments=(*first.attachments, an_attachment(vf=NO_DRIVER)))
    )
    node.table = VfTable(node.sysfs.inventory())

    async def main(attachments: Attachments, _: int) -> None:
        node.daemon().repair.own_recorded()

    node.run(main)

    assert node.table.owner(VF).container_id == "c0ffee"
    assert node.table.owner(NO_DRIVER).container_id == "f00"
    assert "sandbox f00@eth0: VF 0000:03:00.1 belongs to sandbox c0ffee" in caplog.text


@pytest.mark.parametrize("alive", [True, False], ids=["alive", "gone"])
@pytest.mark.parametrize("stage", ["planned", "attached", "detaching"])
def test_sweep_takes_back_what_ended_sandboxes_and_unfinished_requests_left(
    node: Node, stage: str, alive: bool
) -> None:
    node.journal.write(replace(node.run(attached), stage=stage))
    if not alive:
        node.netns.unlink()
        node.netns.parent.rmdir()

    node.sweep()

    expected = ("attached", True) if stage == "attached" else ("detaching", False)
    assert node.state == (expected if alive else (None, False))


def test_record_of_an_unfinished_add_stays_without_rails_for_the_runtimes_del(node: Node) -> None:
    node.run(planned)
    node.sweep()
    node.kernel.steps.clear()
    node.sweep()
    alive = node.state, node.kernel.steps

    node.netns.unlink()
    node.sweep()

    assert alive == (("detaching", False), [])
    assert node.state == (None, False)


def test_what_a_sandbox_left_is_counted_once(node: Node) -> None:
    counted: list[str] = []
    node.run(planned)

    for _ in range(2):
        asyncio.run(node.daemon(took_back=counted.append).recovery.sweep())
        node.netns.unlink(missing_ok=True)

    assert (node.state, counted) == ((None, False), ["rails"])


def test_record_of_an_older_boot_is_taken_back_though_a_namespace_has_its_number_again(node: Node) -> None:
    node.run(attached)
    node.boot = "boot-2"

    node.sweep()

    assert node.state == (None, False)


@pytest.mark.parametrize(("recorded", "now"), [("", "boot-2"), ("boot-1", "")])
def test_record_of_an_unknown_boot_stays_while_its_namespace_is_alive(node: Node, recorded: str, now: str) -> None:
    node.boot = recorded
    node.run(attached)
    node.boot = now

    node.sweep()

    assert node.state == ("attached", True)


def test_record_follows_its_namespace_to_the_path_where_its_vf_is_found(node: Node, monkeypatch) -> None:
    record = node.run(attached)
    node.netns.unlink()
    node.netdev_is(None)
    by_process = record.netns._replace(path="/proc/7/ns/net")
    monkeypatch.setattr(
        orphan_netdev_return, "find_orphans", lambda vfs, root: {VF: OrphanNetdev(by_process, NET1, None)}
    )

    node.sweep()

    assert node.journal.get(KEY) == replace(record, stage="attached", netns=by_process)


def test_vf_that_was_moved_before_its_namespace_ended_is_moved_to_the_node(node: Node, monkeypatch) -> None:
    record = node.run(attached)
    node.netns.unlink()
    node.netdev_is(None)
    elsewhere = record.netns._replace(path="/run/netns/x", inode=7)
    monkeypatch.setattr(
        orphan_netdev_return, "find_orphans", lambda vfs, root: {VF: OrphanNetdev(elsewhere, NET1, None)}
    )
    monkeypatch.setattr(orphan_netdev_return, "move_to_node", lambda steps, found, root: node.netdev_is("net1"))

    node.sweep()

    assert node.state == (None, False)
    assert node.kernel.steps[-1] == RenameLink(31, "ibs5v0")


class Clock:
    """The time of waits for netdevs: it passes only in a sleep, and then at once. The first sleep lasts until all waits sleep."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, waits: int = 1) -> None:
        self.now = 0.0
        self._awaited, self._all_sleep = waits, asyncio.Event()
        loop = SimpleNamespace(time=lambda: self.now)
        monkeypatch.setattr(waiting, "asyncio", SimpleNamespace(get_running_loop=lambda: loop, sleep=self._sleep))

    async def _sleep(self, seconds: float) -> None:
        until = self.now + seconds
        self._awaited -= 1
        if self._awaited == 0:
            self._all_sleep.set()
        await asyncio.wait_for(self._all_sleep.wait(), 20)
        await asyncio.sleep(0)
        self.now = max(self.now, until)


@pytest.fixture
def lost(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two ended sandboxes; the netdevs of their VFs are in no namespace."""
    record = node.run(attached)
    node.netns.unlink()
    node.netdev_is(None)
    other = an_attachment(vf=PciAddress.parse(IN_POD))
    node.journal.write(replace(record, stage="attached", container_id="f00", attachments=(other,)))
    monkeypatch.setattr(orphan_netdev_return, "find_orphans", lambda vfs, root: {})


def test_netdevs_that_never_return_are_awaited_once_and_all_together(
    node: Node, lost: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch, waits=2)

    node.sweep()

    assert list(node.journal.records()) == []
    assert 0.1 <= clock.now < 0.2


@pytest.mark.slow
def test_record_whose_kernel_call_does_not_return_is_left_behind(
    node: Node, lost: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    detach, tries = Attachments.detach, list[str]()

    async def hang(attachments: Attachments, record: Record, netns_fd: int | None) -> Record:
        tries.append(record.container_id)
        if record.container_id == "f00":
            await asyncio.Event().wait()
        return await detach(attachments, record, netns_fd)

    recovery = node.daemon().recovery

    async def sweep_twice() -> None:
        await recovery.sweep()
        await recovery.sweep()

    Clock(monkeypatch)
    monkeypatch.setattr(Attachments, "detach", hang)
    monkeypatch.setattr(sweep, "_RECORD_SECONDS", 5.0)
    asyncio.run(sweep_twice())

    assert [record.container_id for record in node.journal.records()] == ["f00"]
    assert tries.count("f00") == 1  # the next sweep does not try it as well


def test_sweep_does_not_wait_for_a_sandbox_with_a_request(node: Node) -> None:
    async def main(attachments: Attachments, netns_fd: int) -> None:
        await planned(attachments, netns_fd)
        async with node.sandboxes.held(KEY):
            await asyncio.wait_for(node.daemon().recovery.sweep(), 15)

    node.run(main)

    assert node.state == ("planned", True)


def test_sweep_goes_on_when_one_sandbox_cannot_be_taken_back(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    first = node.run(planned)
    node.journal.write(replace(first, container_id="f00", attachments=()))
    node.kernel.refuses = OSError(16, "busy")

    refused = node.kernel.detach

    def once(steps: Iterable[object], netns_fd: int | None) -> None:
        try:
            refused(steps, netns_fd)
        finally:
            node.kernel.refuses = None

    node.kernel.detach = once
    with caplog.at_level(logging.ERROR):
        node.netns.unlink()
        node.netdev_is("net1")  # it has to be renamed
        node.sweep()

    assert [record.key for record in node.journal.records()] == [KEY]
    assert node.state == ("detaching", True)
    assert "the next sweep tries again" in caplog.text
