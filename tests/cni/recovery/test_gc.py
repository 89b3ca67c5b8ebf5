"""GC of rails: which sandboxes are taken back, and which may have begun after the runtime made its list."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from cni.attachment.attachments import Attachments
from railnet.vf.vf_table import Owner
from tests.cni.attachment_node import KEY, VF, Node, a_node, attached, planned

OLD, YOUNG = 0.0, 3600.0  # how long an ADD may take: with these every record is old, or none


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    return a_node(tmp_path, monkeypatch)


def collect(node: Node, *valid: str, younger_than: float = OLD) -> list[str]:
    return asyncio.run(asyncio.wait_for(node.daemon().recovery.collect(frozenset(valid), younger_than), 20))


@pytest.mark.parametrize("play", [planned, attached], ids=["planned", "attached"])
def test_sandbox_that_is_not_listed_is_taken_back(node: Node, play) -> None:
    node.run(play)

    assert collect(node, "other@eth0", "c0ffee@eth1") == []
    assert node.state == (None, False)


def test_sandbox_that_is_listed_keeps_its_rails_even_without_a_namespace(node: Node) -> None:
    node.run(attached)
    node.netns.unlink()

    assert collect(node, KEY) == []
    assert node.state == ("attached", True)


@pytest.mark.parametrize(("alive", "state"), [(True, ("attached", True)), (False, (None, False))])
def test_young_sandbox_may_have_begun_after_the_list_unless_its_namespace_is_gone(
    node: Node, alive: bool, state
) -> None:
    node.run(attached)
    if not alive:
        node.netns.unlink()

    assert collect(node, younger_than=YOUNG) == []
    assert node.state == state


@pytest.mark.parametrize(("alive", "state"), [(True, ("attached", True)), (False, (None, False))])
def test_sandbox_without_a_known_name_stays_while_its_namespace_is_alive(node: Node, alive: bool, state) -> None:
    owner = Owner("c0ffee", "eth0", "uid-1")
    record = replace(node.run(attached), stage="attached", primary={}, container_id="unknown-1")
    node.table.release(VF, owner)
    node.table.claim(VF, owner._replace(container_id="unknown-1"))
    node.journal.remove(replace(record, container_id="c0ffee"))
    node.journal.write(record)
    if not alive:
        node.netns.unlink()

    assert collect(node) == []
    left = node.journal.get(record.key)
    assert (None if left is None else left.stage, node.table.owner(VF) is not None) == state


def test_sandbox_with_a_request_is_neither_changed_nor_awaited(node: Node) -> None:
    async def main(attachments: Attachments, netns_fd: int) -> None:
        await attached(attachments, netns_fd)
        async with node.sandboxes.held(KEY):
            assert await asyncio.wait_for(node.daemon().recovery.collect(frozenset(), OLD), 1) == []

    node.run(main)

    assert node.state == ("attached", True)


def test_failure_is_reported_and_the_record_stays_for_another_try(node: Node) -> None:
    node.run(attached)
    node.kernel.refuses = OSError(16, "Device or resource busy")

    (failure,) = collect(node)
    assert (KEY in failure, "Device or resource busy" in failure) == (True, True)
    assert node.state == ("detaching", True)

    node.kernel.refuses = None
    assert collect(node) == []
    assert node.state == (None, False)


def test_records_for_which_there_is_no_time_are_counted_and_left_for_the_next_gc(node: Node) -> None:
    node.run(attached)

    async def main() -> tuple[list[str], list[str]]:
        recovery = node.daemon().recovery
        return await recovery.collect(frozenset(), OLD, 0), await recovery.collect(frozenset(), OLD)

    first, second = asyncio.run(main())

    assert first == ["the time was over before 1 more records were looked at; GC goes on with them"]
    assert (second, node.state) == ([], (None, False))
