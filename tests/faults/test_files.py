"""Damaged files of the journal, kubelet, flannel and the container runtime: truncated by a crash, or with wrong bytes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from railnet.kernel.waiting import block_until
from simnode.kubernetes.runtime import CniFailed
from tests.faults.matrix import Row
from tests.faults.points import tried
from tests.faults.supervised_node import SupervisedNode

_JOURNAL, _QUARANTINE = Path("/run/railnet/journal"), Path("/run/railnet/quarantine")
_CHECKPOINT = Path("/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint")
_SUBNET = Path("/run/flannel/subnet.env")
_OURS, _PRIMARY = Path("/etc/cni/net.d/00-railnet.conflist"), Path("/etc/cni/net.d/10-flannel.conflist")
_SAMPLES = 8
_SECONDS, _LOOK_SECONDS = 60.0, 0.02


def damaged(whole: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield names and contents of damaged copies of a file: from the empty file to all but the last byte, and with wrong bytes."""
    for part in range(_SAMPLES):
        yield f"the first {part}/{_SAMPLES}", whole[: len(whole) * part // _SAMPLES]
    yield "the first byte", whole[:1]
    yield "all but the last character", whole.rstrip()[:-1]
    middle = len(whole) // 2
    yield "a byte changed", whole[:middle] + bytes((whole[middle] ^ 0x80,)) + whole[middle + 1 :]
    yield "only NUL bytes", bytes(len(whole))
    yield "twice", whole + whole


def test_daemon_quarantines_a_damaged_record(supervised: SupervisedNode, row: Row) -> None:
    row.operation, row.process, row.fault = "start and DEL", "journal record", "damaged"
    contents: list[str] = []

    def trial(what: str | None) -> list[str]:
        identity = supervised.admit(1)
        sandbox = supervised.sandbox(identity)
        supervised.node.runtime.add(sandbox)
        record = _JOURNAL / f"{sandbox.container_id}@eth0.json"
        content = dict(damaged(record.read_bytes()))
        contents[:] = content
        problems = []
        if what is not None:
            supervised.node.kill_daemon()
            record.write_bytes(content[what])
            supervised.node.start_daemon(wait=False)
            if not block_until(lambda: list(_QUARANTINE.iterdir()), _SECONDS, _LOOK_SECONDS):
                problems = ["the record was not put into quarantine"]
        problems += supervised.delete(sandbox)
        for path in _QUARANTINE.iterdir():
            path.unlink()
        return [*problems, *supervised.run_again(identity)]

    assert tried(supervised, trial, None) == []
    for what in tuple(contents):
        row.count(what, tried(supervised, trial, what))

    assert row.failures == []


@pytest.mark.parametrize("path", [_CHECKPOINT, _SUBNET, _PRIMARY], ids=["checkpoint", "subnet.env", "conflist"])
def test_add_with_a_damaged_file_fails_with_a_cni_error_or_attaches_the_rail(
    supervised: SupervisedNode, row: Row, path: Path
) -> None:
    row.operation, row.process, row.fault = "ADD, rail pod", path.name, "damaged"

    def trial(what: str) -> list[str]:
        identity = supervised.admit(1)
        whole = path.read_bytes()
        sandbox = supervised.sandbox(identity)
        path.write_bytes(dict(damaged(whole))[what])
        problems = []
        try:
            supervised.node.runtime.add(sandbox)
        except CniFailed as failure:
            if failure.code is None:
                problems = [f"no CNI error: {failure}"]
        else:
            if not (_JOURNAL / f"{sandbox.container_id}@eth0.json").exists():
                problems = ["the pod got no rail, although it has a VF"]
        finally:
            path.write_bytes(whole)
        return [*problems, *supervised.delete(sandbox), *supervised.run_again(identity)]

    for what, _ in damaged(path.read_bytes()):
        row.count(what, tried(supervised, trial, what))

    assert row.failures == []


def test_daemon_rewrites_a_damaged_conflist(supervised: SupervisedNode, row: Row) -> None:
    row.operation, row.process, row.fault = "serving", "00-railnet.conflist", "damaged"
    whole = _OURS.read_bytes()
    for what, content in damaged(whole):
        _OURS.write_bytes(content)
        repaired = block_until(lambda: _OURS.read_bytes() == whole, _SECONDS, _LOOK_SECONDS)
        row.count(what, [] if repaired else ["the conflist stays damaged"])

    assert row.failures == []
