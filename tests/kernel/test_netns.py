"""Naming and opening namespaces, as far as it takes no privilege; entering one is tested in the node tier."""

import os
from pathlib import Path

import pytest

from kernel.netns import NetnsIdentity, identity, inside, opened

OWN = Path("/proc/self/ns/net")


def test_identity_is_device_and_inode() -> None:
    facts = OWN.stat()
    fd = os.open(OWN, os.O_RDONLY)

    found = identity(fd)

    os.close(fd)
    assert found == NetnsIdentity(facts.st_dev, facts.st_ino)


def test_opened_gives_the_namespace_while_it_is_the_expected_one() -> None:
    facts = OWN.stat()

    with opened(OWN, NetnsIdentity(facts.st_dev, facts.st_ino)) as fd:
        assert os.fstat(fd).st_ino == facts.st_ino

    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


@pytest.mark.parametrize("path", ["missing", "file/below", "file"], ids=["gone", "below a file", "another's"])
def test_opened_gives_none_when_the_namespace_is_gone(tmp_path: Path, path: str) -> None:
    (tmp_path / "file").touch()

    with opened(tmp_path / path, NetnsIdentity(4, 4026531840)) as fd:
        assert fd is None


def test_opened_does_not_wait_for_a_fifo(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")

    with opened(tmp_path / "fifo", NetnsIdentity(4, 4026531840)) as fd:
        assert fd is None


@pytest.mark.parametrize(("fd", "words"), [(-1, "Bad file descriptor"), (0, "setns of descriptor 0")])
def test_inside_is_refused_with_words_when_the_descriptor_is_no_namespace(fd: int, words: str) -> None:
    ran: list[int] = []

    with pytest.raises(OSError, match=words):
        inside(fd, lambda: ran.append(1))

    assert ran == []
