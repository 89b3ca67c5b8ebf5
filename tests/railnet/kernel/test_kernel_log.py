"""/dev/kmsg, in whose place is a pipe of packets: each read is a record, and what the kernel refuses is counted or told."""

import errno
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from railnet.kernel.kernel_log import KernelLog


class Pipe:
    """A named pipe, opened by the log."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self.log = KernelLog(path)
        self._writer = os.open(path, os.O_WRONLY)
        fcntl.fcntl(self._writer, fcntl.F_SETFL, os.O_DIRECT)

    def write(self, *records: bytes) -> None:
        for record in records:
            os.write(self._writer, record)

    def close(self) -> None:
        os.close(self._writer)


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Pipe]:
    pipe = Pipe(tmp_path / "kmsg")
    with pipe.log:
        yield pipe
    pipe.close()


def test_records_are_returned_one_by_one_and_no_more_than_wanted(pipe: Pipe) -> None:
    pipe.write(b"1", b"2", b"3")

    assert [pipe.log.records(2), pipe.log.records(2), pipe.log.records(2)] == [[b"1", b"2"], [b"3"], []]
    assert pipe.log.lost == 0


def test_writer_that_is_gone_is_no_record(pipe: Pipe) -> None:
    pipe.close()
    assert pipe.log.records(5) == []
    pipe._writer = os.open(os.devnull, os.O_RDONLY)


def refusing(monkeypatch: pytest.MonkeyPatch, *numbers: int) -> None:
    """Have the first reads fail with these numbers, the last of them for ever."""
    refusals, read = list(numbers), os.read

    def refuse(fd: int, size: int) -> bytes:
        if refusals:
            number = refusals[0]
            if len(refusals) > 1:
                refusals.pop(0)
            if number:
                raise OSError(number, os.strerror(number))
        return read(fd, size)

    monkeypatch.setattr("railnet.kernel.kernel_log.os.read", refuse)


def test_overwritten_records_are_counted_and_the_rest_is_read(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    pipe.write(b"1")
    refusing(monkeypatch, errno.EPIPE, errno.EINVAL, 0)

    assert pipe.log.records(9) == [b"1"]
    assert pipe.log.lost == 2


def test_log_that_is_always_overwritten_ends(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    refusing(monkeypatch, errno.EPIPE)

    assert pipe.log.records(9) == []
    assert pipe.log.lost == 9


def test_other_refusal_is_an_error(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    refusing(monkeypatch, errno.EPERM)

    with pytest.raises(PermissionError):
        pipe.log.records(9)


def test_what_is_no_device_is_refused_and_named(tmp_path: Path) -> None:
    file = tmp_path / "kmsg"
    file.touch()
    before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(OSError, match="it is no character device") as raised:
        KernelLog(file)

    assert raised.value.filename == str(file)
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    with pytest.raises(FileNotFoundError):
        KernelLog(tmp_path / "absent")
