"""A descriptor that a thread opens and the event loop closes."""

import os
from pathlib import Path

import pytest

from railnet.kernel.threads.thread_opened_descriptor import ThreadOpenedDescriptor


def test_descriptor_is_open_until_it_is_closed(tmp_path: Path) -> None:
    descriptor = ThreadOpenedDescriptor()

    fd = descriptor.open(lambda: os.open(tmp_path, os.O_PATH))
    opened = os.fstat(fd).st_ino
    descriptor.close()

    assert opened == tmp_path.stat().st_ino
    assert not descriptor.is_open
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


def test_descriptor_that_is_opened_after_its_end_is_closed_at_once(tmp_path: Path) -> None:
    descriptor, opened = ThreadOpenedDescriptor(), list[int]()

    def open_late() -> int:
        descriptor.close()
        opened.append(os.open(tmp_path, os.O_PATH))
        return opened[0]

    with pytest.raises(FileNotFoundError, match="closed meanwhile"):
        descriptor.open(open_late)

    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(opened[0])


def test_descriptor_that_was_never_opened_may_be_closed() -> None:
    descriptor = ThreadOpenedDescriptor()
    descriptor.close()
    descriptor.close()

    assert not descriptor.is_open
