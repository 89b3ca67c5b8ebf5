"""Starts of the daemon with something to take back, and with VFs to make: it dies at each call, or the call fails."""

import json
from collections.abc import Iterator

import pytest

from simnode.chaos.syscall_supervisor import Watch
from simnode.host_files import CONFIGURATION
from tests.faults.ground import Ground
from tests.faults.interference import FAILED, KILLED, How, kill
from tests.faults.points import each_point
from tests.faults.table import Row

_VFS = 3  # a start that makes eight has the same moments more often


@pytest.mark.parametrize("how", [KILLED, FAILED], ids=[KILLED.words, FAILED.words])
def test_what_was_left_is_taken_back_whatever_happens_to_the_start_that_does_it(
    ground: Ground, row: Row, how: How
) -> None:
    last = _last_write(ground)

    def recovery(watch: Watch) -> list[str]:
        gone, begun = ground.admit(1), ground.admit(1)
        of_gone, of_begun = ground.sandbox(gone), ground.sandbox(begun)
        ground.node.runtime.add(of_gone)
        ground.watched(Watch("daemon", last, kill), "ADD", of_begun)
        ground.node.kill_daemon()
        ground.node.runtime.remove_sandbox(of_gone)
        problems = _start(ground, watch, how)
        problems += [*ground.delete(of_begun), *ground.delete(of_gone)]
        ground.node.kubelet.remove(gone)
        return problems or ground.again(begun)

    row.operation, row.process, row.fault = "start that recovers", "daemon", how.words
    each_point(row, "daemon", how, ground, recovery)


@pytest.mark.parametrize("how", [KILLED, FAILED], ids=[KILLED.words, FAILED.words])
def test_vfs_are_as_configured_whatever_happened_to_the_start_that_makes_them(
    few_vfs: Ground, row: Row, how: How
) -> None:
    def provisioning(watch: Watch) -> list[str]:
        few_vfs.node.kill_daemon()
        few_vfs.remove_vfs()
        problems = _start(few_vfs, watch, how)
        return [*problems, *few_vfs.again(few_vfs.admit(1))]

    row.operation, row.process, row.fault = "start that makes VFs", "daemon", how.words
    each_point(row, "daemon", how, few_vfs, provisioning)


@pytest.fixture
def few_vfs(ground: Ground) -> Iterator[Ground]:
    """A node that is told to have few VFs."""
    told, before, vfs = CONFIGURATION.read_text(), ground.before, ground.node.vfs
    document = json.loads(told)
    document["provision"][0]["vfs"] = ground.node.vfs = _VFS
    for text in (json.dumps(document), told):
        ground.node.kill_daemon()
        ground.remove_vfs()
        CONFIGURATION.write_text(text)
        ground.node.start_daemon()
        if text != told:
            ground.before = ground.look()
            yield ground
            ground.node.vfs, ground.before = vfs, before


def _start(ground: Ground, watch: Watch, how: How) -> list[str]:
    """Start the daemon with a fault, and again until it serves, as the DaemonSet does."""
    ended = ground.watched_start(watch)
    if watch.hit is None or ended is None:
        return [] if ended is None else [f"the daemon ended without a fault: {ended}"]
    if how is KILLED:
        ground.node.daemon.process.wait(10)
    if ground.node.daemon.process.poll() is None:
        ground.node.kill_daemon()
        ground.node.start_daemon()
        return ["the daemon did not end and did not get ready"]
    ground.node.start_daemon()
    return []


def _last_write(ground: Ground) -> int:
    """Tell which of the daemon's points of an ADD is the record's last renaming: then the rail is attached, and not confirmed."""
    identity = ground.admit(1)
    box = ground.sandbox(identity)
    ground.watched(watch := Watch(), "ADD", box)
    ground.node.kubelet.remove(identity)
    ground.node.runtime.tear_down(box)
    renames = [number for number, point in enumerate(watch.numbered("daemon"), start=1) if point.call == "rename"]
    assert len(renames) >= 2
    return renames[-1]
