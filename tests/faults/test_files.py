"""Files of which a crash left a part, or that somebody wrote nonsense into: the journal's, kubelet's, flannel's, the runtime's."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from simnode.kubernetes.runtime import CniFailed
from tests.faults.ground import Ground
from tests.faults.points import tried
from tests.faults.table import Row

_JOURNAL, _QUARANTINE = Path("/run/railnet/journal"), Path("/run/railnet/quarantine")
_CHECKPOINT = Path("/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint")
_SUBNET = Path("/run/flannel/subnet.env")
_OURS, _PRIMARY = Path("/etc/cni/net.d/00-railnet.conflist"), Path("/etc/cni/net.d/10-flannel.conflist")
_SAMPLES = 8
_SECONDS = 30.0


def damaged(whole: bytes) -> Iterator[tuple[str, bytes]]:
    """Give parts of a file, the empty one and all but the last bytes among them; and wholes with nonsense in them."""
    for part in range(_SAMPLES):
        yield f"the first {part}/{_SAMPLES}", whole[: len(whole) * part // _SAMPLES]
    yield "the first byte", whole[:1]
    yield "all but the last character", whole.rstrip()[:-1]
    middle = len(whole) // 2
    yield "a byte changed", whole[:middle] + bytes((whole[middle] ^ 0x80,)) + whole[middle + 1 :]
    yield "only NUL bytes", bytes(len(whole))
    yield "twice", whole + whole


def test_record_that_cannot_be_read(ground: Ground, row: Row) -> None:
    row.operation, row.process, row.fault = "start and DEL", "journal record", "damaged"
    contents: list[str] = []

    def trial(what: str | None) -> list[str]:
        identity = ground.admit(1)
        box = ground.sandbox(identity)
        ground.node.runtime.add(box)
        record = _JOURNAL / f"{box.container_id}@eth0.json"
        content = dict(damaged(record.read_bytes()))
        contents[:] = content
        problems = []
        if what is not None:
            ground.node.kill_daemon()
            record.write_bytes(content[what])
            ground.node.start_daemon(wait=False)
            if not _until(lambda: list(_QUARANTINE.iterdir()) != []):
                problems = ["it was not put into quarantine"]
        problems += ground.delete(box)
        for path in _QUARANTINE.iterdir():
            path.unlink()
        return [*problems, *ground.again(identity)]

    assert tried(ground, trial, None) == []
    for what in tuple(contents):
        row.count(what, tried(ground, trial, what))

    assert row.failures == []


@pytest.mark.parametrize("path", [_CHECKPOINT, _SUBNET, _PRIMARY], ids=["checkpoint", "subnet.env", "conflist"])
def test_add_with_a_file_that_cannot_be_read(ground: Ground, row: Row, path: Path) -> None:
    row.operation, row.process, row.fault = "ADD, rail pod", path.name, "damaged"

    def trial(what: str) -> list[str]:
        identity = ground.admit(1)
        whole = path.read_bytes()
        box = ground.sandbox(identity)
        path.write_bytes(dict(damaged(whole))[what])
        problems = []
        try:
            ground.node.runtime.add(box)
        except CniFailed as failure:
            if failure.code is None:
                problems = [f"no CNI error: {failure}"]
        else:
            if not (_JOURNAL / f"{box.container_id}@eth0.json").exists():
                problems = ["the pod was taken for one without a rail"]
        finally:
            path.write_bytes(whole)
        return [*problems, *ground.delete(box), *ground.again(identity)]

    for what, _ in damaged(path.read_bytes()):
        row.count(what, tried(ground, trial, what))

    assert row.failures == []


def test_conflist_that_somebody_damages_is_written_again(ground: Ground, row: Row) -> None:
    row.operation, row.process, row.fault = "serving", "00-railnet.conflist", "damaged"
    whole = _OURS.read_bytes()
    for what, content in damaged(whole):
        _OURS.write_bytes(content)
        row.count(what, [] if _until(lambda: _OURS.read_bytes() == whole) else ["it stays damaged"])

    assert row.failures == []


def _until(condition: Callable[[], bool]) -> bool:
    give_up = time.monotonic() + _SECONDS
    while not condition():
        if time.monotonic() > give_up:
            return False
        time.sleep(0.02)
    return True
