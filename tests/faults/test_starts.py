"""Starts of the daemon with stale records, and with VFs to enable: the daemon dies at each call, or the call fails."""

import json
from collections.abc import Iterator

import pytest

from simnode.chaos.syscall_supervisor import CallWatch
from simnode.preinstalled_files import CONFIGURATION
from tests.faults.fault_kinds import FAILED, KILLED, FaultKind, kill
from tests.faults.matrix import Row
from tests.faults.points import each_point
from tests.faults.supervised_node import SupervisedNode

_VFS = 3  # a start that enables eight VFs has the same points more often


@pytest.mark.parametrize("kind", [KILLED, FAILED], ids=[KILLED.name, FAILED.name])
def test_recovery_succeeds_after_a_start_with_a_fault_at_any_call(
    supervised: SupervisedNode, row: Row, kind: FaultKind
) -> None:
    last = _last_write(supervised)

    def recovery(watch: CallWatch) -> list[str]:
        gone, begun = supervised.admit(1), supervised.admit(1)
        of_gone, of_begun = supervised.sandbox(gone), supervised.sandbox(begun)
        supervised.node.runtime.add(of_gone)
        supervised.run_watched(CallWatch("daemon", last, kill), "ADD", of_begun)
        supervised.node.kill_daemon()
        supervised.node.runtime.remove_sandbox(of_gone)
        problems = _start(supervised, watch, kind)
        problems += [*supervised.delete(of_begun), *supervised.delete(of_gone)]
        supervised.node.kubelet.remove(gone)
        return problems or supervised.run_again(begun)

    row.operation, row.process, row.fault = "start that recovers", "daemon", kind.name
    each_point(row, "daemon", kind, supervised, recovery)


@pytest.mark.parametrize("kind", [KILLED, FAILED], ids=[KILLED.name, FAILED.name])
def test_vfs_are_as_configured_after_a_start_with_a_fault_at_any_call(
    few_vfs: SupervisedNode, row: Row, kind: FaultKind
) -> None:
    def provisioning(watch: CallWatch) -> list[str]:
        few_vfs.node.kill_daemon()
        few_vfs.remove_vfs()
        problems = _start(few_vfs, watch, kind)
        return [*problems, *few_vfs.run_again(few_vfs.admit(1))]

    row.operation, row.process, row.fault = "start that makes VFs", "daemon", kind.name
    each_point(row, "daemon", kind, few_vfs, provisioning)


@pytest.fixture
def few_vfs(supervised: SupervisedNode) -> Iterator[SupervisedNode]:
    """The node with a configuration that has few VFs."""
    configured, before, vfs = CONFIGURATION.read_text(), supervised.before, supervised.node.vfs
    document = json.loads(configured)
    document["provision"][0]["vfs"] = supervised.node.vfs = _VFS
    for text in (json.dumps(document), configured):
        supervised.node.kill_daemon()
        supervised.remove_vfs()
        CONFIGURATION.write_text(text)
        supervised.node.start_daemon()
        if text != configured:
            supervised.before = supervised.look()
            yield supervised
            supervised.node.vfs, supervised.before = vfs, before


def _start(supervised: SupervisedNode, watch: CallWatch, kind: FaultKind) -> list[str]:
    """Start the daemon with a fault, and again until it serves, as the DaemonSet does."""
    ended = supervised.start_watched(watch)
    if watch.hit is None or ended is None:
        return [] if ended is None else [f"the daemon ended without a fault: {ended}"]
    if kind is KILLED:
        supervised.node.daemon.process.wait(60)
    if supervised.node.daemon.process.poll() is None:
        supervised.node.kill_daemon()
        supervised.node.start_daemon()
        return ["the daemon did not end and did not become ready"]
    supervised.node.start_daemon()
    return []


def _last_write(supervised: SupervisedNode) -> int:
    """Return the number of the daemon's point at which ADD renames the record for the last time.

    At that point the rail is attached, and the record does not say so yet.
    """
    identity = supervised.admit(1)
    sandbox = supervised.sandbox(identity)
    supervised.run_watched(watch := CallWatch(), "ADD", sandbox)
    supervised.node.kubelet.remove(identity)
    supervised.node.runtime.tear_down(sandbox)
    renames = [number for number, point in enumerate(watch.numbered("daemon"), start=1) if point.call == "rename"]
    assert len(renames) >= 2
    return renames[-1]
