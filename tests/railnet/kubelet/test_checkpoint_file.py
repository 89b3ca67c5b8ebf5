"""The checkpoint as a file: it is read again only when it has changed."""

import json
import os
from pathlib import Path

import pytest

from railnet.errors import NotReady
from railnet.kubelet import checkpoint
from railnet.kubelet.checkpoint_file import CheckpointFile

RAIL = "rdma/ib_vf"
LONG_AGO_NS = 1_000_000_000_000_000_000


@pytest.fixture
def kubelet(tmp_path: Path) -> Path:
    (tmp_path / "device-plugins").mkdir()
    return tmp_path


def write(kubelet: Path, *ids: str, mtime_ns: int = LONG_AGO_NS) -> Path:
    """Replace the checkpoint by rename, as kubelet does."""
    entry = {"PodUID": "uid-1", "ResourceName": RAIL, "DeviceIDs": {"0": list(ids)}}
    path = kubelet / "device-plugins" / "kubelet_internal_checkpoint"
    new = path.with_name(".new")
    new.write_text(json.dumps({"Data": {"PodDeviceEntries": [entry]}}))
    os.utime(new, ns=(mtime_ns, mtime_ns))
    new.rename(path)
    return path


def test_read_returns_the_entries(kubelet: Path) -> None:
    write(kubelet, "a")

    assert CheckpointFile(kubelet / "device-plugins").read() == {"uid-1": {RAIL: {"a"}}}


def test_read_returns_the_new_entries_when_kubelet_replaced_the_file(kubelet: Path) -> None:
    write(kubelet, "a")
    file = CheckpointFile(kubelet / "device-plugins")
    file.read()
    write(kubelet, "b", mtime_ns=LONG_AGO_NS + 1)

    assert file.read() == {"uid-1": {RAIL: {"b"}}}


def test_read_returns_the_new_entries_when_the_size_alone_changed(kubelet: Path) -> None:
    path = write(kubelet, "a")
    file = CheckpointFile(kubelet / "device-plugins")
    file.read()
    path.write_text(path.read_text().replace('"a"', '"a", "b"'))
    os.utime(path, ns=(LONG_AGO_NS, LONG_AGO_NS))

    assert file.read() == {"uid-1": {RAIL: {"a", "b"}}}


def test_read_does_not_parse_again_while_nothing_changed(kubelet: Path) -> None:
    write(kubelet, "a")
    file = CheckpointFile(kubelet / "device-plugins")

    assert file.read() is file.read()


def test_read_remembers_nothing_when_the_file_was_written_just_now(kubelet: Path) -> None:
    path = write(kubelet, "a")
    os.utime(path)
    file = CheckpointFile(kubelet / "device-plugins")

    assert file.read() is not file.read()


def test_content_is_parsed_once_for_devices_and_answers(kubelet: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[bytes] = []
    listed = checkpoint.listed

    def noted(raw: bytes) -> checkpoint.Listed:
        parsed.append(raw)
        return listed(raw)

    monkeypatch.setattr(checkpoint, "listed", noted)
    path = write(kubelet, "a")
    os.utime(path)
    file = CheckpointFile(kubelet / "device-plugins")
    file.read()
    file.allocations("uid-1", frozenset({RAIL}))
    once = len(parsed)
    write(kubelet, "b")

    assert (once, file.read(), len(parsed)) == (1, {"uid-1": {RAIL: {"b"}}}, 2)


def test_read_returns_nothing_when_kubelet_never_allocated_a_device(kubelet: Path) -> None:
    assert CheckpointFile(kubelet / "device-plugins").read() == {}


def test_read_returns_the_new_entries_when_the_file_was_gone_for_a_moment(kubelet: Path) -> None:
    path = write(kubelet, "a")
    file = CheckpointFile(kubelet / "device-plugins")
    file.read()
    path.unlink()
    file.read()
    write(kubelet, "b", mtime_ns=LONG_AGO_NS + 1)

    assert file.read() == {"uid-1": {RAIL: {"b"}}}


def test_read_is_not_ready_when_the_folder_is_missing(tmp_path: Path) -> None:
    with pytest.raises(NotReady, match=r"device-plugins is missing.*host\.devicePlugins"):
        CheckpointFile(tmp_path / "elsewhere" / "device-plugins").read()


def test_read_raises_value_error_when_the_file_is_not_understood(kubelet: Path) -> None:
    (kubelet / "device-plugins" / "kubelet_internal_checkpoint").write_text("{")

    with pytest.raises(ValueError, match="not understood"):
        CheckpointFile(kubelet / "device-plugins").read()
