"""What is observed of a sandbox's network namespace, and that an error of the kernel changes nothing."""

import asyncio
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from cni.attachment.host_netdev_lookup import NetdevLookup
from cni.attachment.netdev_return import NodeNetdevs
from cni.recovery import namespace_observation
from cni.recovery.namespace_observation import Observed, SandboxNamespaces
from cni.recovery.rules import NamespaceState
from railnet.kernel.namespaces import orphan_netdev_return
from railnet.vf.orphan_rescue import OrphanNetdev
from railnet.vf.record import Netns
from railnet.vf.sandbox_difference import SandboxLink
from tests.cni.attachment_node import KEY, VF, Node, a_node, attached

NET1 = SandboxLink("net1", "InfiniBand", 4092, up=True, addresses=frozenset())


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    return a_node(tmp_path, monkeypatch)


def observed(node: Node) -> Observed:
    netdevs = NetdevLookup(node.table, node.sysfs, 0.1)
    node_netdevs = NodeNetdevs(node.table, node.sysfs, netdevs, node.folder)
    record = node.journal.get(KEY)
    assert record is not None
    return asyncio.run(SandboxNamespaces(node.folder, node.boot, node_netdevs).observe(record))


def replace_by_another(node: Node) -> None:
    kept = os.open(node.netns, os.O_RDONLY)  # or its inode could be used again
    node.netns.unlink()
    node.netns.touch()
    os.close(kept)


@contextmanager
def refused(root: Path, path: str, expected: object) -> Iterator[int | None]:
    raise PermissionError(13, "Permission denied", path)
    yield


def moved(node: Node, monkeypatch: pytest.MonkeyPatch, **changes: object) -> Netns:
    """Have the namespace, or with changes another one, found at a process, with the sandbox's VF."""
    record = node.journal.get(KEY)
    assert record is not None
    netns = record.netns._replace(path="/proc/7/ns/net", **changes)
    node.netns.unlink()
    node.netdev_is(None)
    monkeypatch.setattr(orphan_netdev_return, "find_orphans", lambda vfs, root: {VF: OrphanNetdev(netns, NET1, None)})
    return netns


def test_namespace_at_its_recorded_path_is_alive(node: Node) -> None:
    node.run(attached)

    assert observed(node) == Observed(NamespaceState.ALIVE)


@pytest.mark.parametrize("end", [lambda node: node.netns.unlink(), replace_by_another], ids=["unbound", "replaced"])
def test_namespace_that_is_not_at_its_recorded_path_is_gone(node: Node, end) -> None:
    node.run(attached)

    end(node)

    assert observed(node) == Observed(NamespaceState.GONE)


def test_namespace_that_is_found_at_another_path_has_moved(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    node.run(attached)
    netns = moved(node, monkeypatch)

    assert observed(node) == Observed(NamespaceState.MOVED, netns)


def test_namespace_is_gone_when_its_vf_is_found_in_another_one(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    node.run(attached)
    moved(node, monkeypatch, inode=7)

    assert observed(node) == Observed(NamespaceState.GONE)


def test_namespace_of_an_older_boot_is_not_opened(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    node.run(attached)
    node.boot = "boot-2"
    monkeypatch.setattr(namespace_observation, "opened", refused)

    assert observed(node) == Observed(NamespaceState.OLDER_BOOT)


def test_namespace_that_cannot_be_opened_is_not_known(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    node.run(attached)
    monkeypatch.setattr(namespace_observation, "opened", refused)

    found = observed(node)

    assert found.state is NamespaceState.UNKNOWN
    assert isinstance(found.error, PermissionError)


@pytest.mark.parametrize("stage", ["planned", "attached", "detaching"])
def test_sweep_reports_a_namespace_that_is_not_known_and_takes_nothing_back(
    node: Node, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, stage: str
) -> None:
    node.journal.write(replace(node.run(attached), stage=stage))
    node.kernel.steps.clear()
    monkeypatch.setattr(namespace_observation, "opened", refused)

    with caplog.at_level(logging.ERROR):
        node.sweep()

    assert (node.state, node.kernel.steps) == ((stage, True), [])
    assert "Permission denied" in caplog.text
    assert "the next sweep tries again" in caplog.text


@pytest.mark.parametrize(("younger_than", "failures"), [(3600.0, 1), (0.0, 0)], ids=["young", "old"])
def test_gc_takes_an_unlisted_sandbox_back_though_its_namespace_is_not_known_unless_it_is_young(
    node: Node, monkeypatch: pytest.MonkeyPatch, younger_than: float, failures: int
) -> None:
    node.run(attached)
    monkeypatch.setattr(namespace_observation, "opened", refused)

    found = asyncio.run(node.daemon().recovery.collect(frozenset(), younger_than))

    assert len(found) == failures
    assert node.state == (("attached", True) if failures else (None, False))
