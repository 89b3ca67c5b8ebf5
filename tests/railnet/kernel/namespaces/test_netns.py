"""Namespaces: their identity and opening, as far as they need no privilege. The node tier tests entering one."""

import os
from pathlib import Path

import pytest

from railnet.kernel.namespaces.netns import NetnsIdentity, identity, inside, opened

OWN = Path("/proc/self/ns/net")


def test_identity_is_device_and_inode() -> None:
    facts = OWN.stat()
    fd = os.open(OWN, os.O_RDONLY)

    found = identity(fd)

    os.close(fd)
    assert found == NetnsIdentity(facts.st_dev, facts.st_ino)


# `opened` sees a namespace only as a file with a device and an inode, so a plain file serves as a namespace here.


@pytest.fixture
def bound(tmp_path: Path) -> Path:
    path = tmp_path / "run/netns/cni-1"
    path.parent.mkdir(parents=True)
    path.touch()
    return path


def identity_of_file(path: Path) -> NetnsIdentity:
    return NetnsIdentity(path.stat().st_dev, path.stat().st_ino)


def test_opened_yields_the_expected_namespace_and_closes_it(tmp_path: Path, bound: Path) -> None:
    with opened(tmp_path, "/run/netns/cni-1", identity_of_file(bound)) as fd:
        assert identity(fd) == identity_of_file(bound)

    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


def test_opened_follows_an_absolute_link_as_on_the_host(tmp_path: Path, bound: Path) -> None:
    (tmp_path / "var").mkdir()
    (tmp_path / "var/run").symlink_to("/run")

    with opened(tmp_path, "/var/run/netns/cni-1", identity_of_file(bound)) as fd:
        assert fd is not None


@pytest.mark.parametrize(
    "path", ["/run/netns/cni-2", "/run/netns/cni-1/x", "/run/other"], ids=["gone", "below a file", "another namespace"]
)
def test_opened_yields_none_when_the_namespace_is_gone(tmp_path: Path, bound: Path, path: str) -> None:
    (tmp_path / "run/other").touch()

    with opened(tmp_path, path, identity_of_file(bound)) as fd:
        assert fd is None


def test_opened_does_not_block_on_a_fifo(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")

    with opened(tmp_path, "/fifo", NetnsIdentity(4, 4026531840)) as fd:
        assert fd is None


@pytest.mark.parametrize(("fd", "words"), [(-1, "Bad file descriptor"), (0, "setns of descriptor 0")])
def test_inside_fails_when_the_descriptor_is_not_a_namespace(fd: int, words: str) -> None:
    ran: list[int] = []

    with pytest.raises(OSError, match=words):
        inside(fd, lambda: ran.append(1))

    assert ran == []


def test_inside_names_the_limit_when_no_thread_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("_thread.start_new_thread", refuse)

    with pytest.raises(BlockingIOError, match=r"can't start new thread.*pids\.max"):
        inside(0, bytes)
