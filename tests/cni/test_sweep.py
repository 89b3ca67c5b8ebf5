"""What was left behind: owned again at start, and taken back by the sweep."""

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from cni import rails as rails_module
from cni.rails import Rails
from tests.cni.railway import KEY, NO_DRIVER, VF, Kernel, Node, attached, planned
from tests.vf.builders import an_attachment
from vf.table import Owner, VfTable


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    kernel = Kernel()
    monkeypatch.setattr(rails_module, "perform", kernel)
    monkeypatch.setattr(rails_module, "_NETDEV_SECONDS", 0.1)
    return Node(tmp_path, kernel)


def test_restore_owns_what_the_journal_says(node: Node) -> None:
    node.run(attached)
    node.table = VfTable(node.sysfs.inventory())

    async def main(rails: Rails, _: int) -> None:
        rails.restore()

    node.run(main)

    assert node.table.owner(VF) == Owner("c0ffee", "eth0", "uid-1")


def test_restore_goes_on_when_two_records_name_one_vf(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    first = node.run(planned)
    node.journal.write(
        replace(first, container_id="f00", attachments=(*first.attachments, an_attachment(vf=NO_DRIVER)))
    )
    node.table = VfTable(node.sysfs.inventory())

    async def main(rails: Rails, _: int) -> None:
        rails.restore()

    node.run(main)

    assert node.table.owner(VF).container_id == "c0ffee"
    assert node.table.owner(NO_DRIVER).container_id == "f00"
    assert "sandbox f00@eth0: VF 0000:03:00.1 belongs to sandbox c0ffee" in caplog.text


@pytest.mark.parametrize("at_start", [True, False], ids=["at start", "later"])
@pytest.mark.parametrize("alive", [True, False], ids=["alive", "gone"])
@pytest.mark.parametrize("stage", ["planned", "attached", "detaching"])
def test_sweep_takes_what_no_sandbox_has_and_at_start_what_was_not_finished(node, stage, alive, at_start) -> None:
    node.journal.write(replace(node.run(attached), stage=stage))
    if not alive:
        node.netns.unlink()
        node.netns.parent.rmdir()

    async def main() -> None:
        await node.rails().sweep(at_start=at_start)

    asyncio.run(main())

    taken = not alive or (at_start and stage != "attached")
    assert node.state == ((None, False) if taken else (stage, True))


def test_sweep_does_not_wait_for_a_sandbox_that_a_request_is_at(node: Node) -> None:
    async def main(rails: Rails, netns_fd: int) -> None:
        await planned(rails, netns_fd)
        async with rails.one_at_a_time.held(KEY):
            await asyncio.wait_for(rails.sweep(at_start=True), 1)

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
        node.run(lambda rails, _: rails.sweep(at_start=True))

    assert [record.key for record in node.journal.records()] == [KEY]
    assert node.state == ("detaching", True)
    assert "the next sweep tries again" in caplog.text
