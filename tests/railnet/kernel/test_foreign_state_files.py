"""State files of another program: read them; remove one only unchanged and under the other program's lock."""

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from railnet.kernel import foreign_state_files
from railnet.kernel.foreign_state_files import Entry, entries, remove

FOLDER = "/var/lib/cni/networks/cbr0"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / FOLDER.lstrip("/")
    folder.mkdir(parents=True)
    return folder


@pytest.fixture
def entry(tmp_path: Path, folder: Path) -> Entry:
    (folder / "10.0.0.2").write_text("c0ffee\r\neth0")
    (found,) = entries(tmp_path, FOLDER)
    return found


def test_files_are_read_with_content_and_modification_time(tmp_path: Path, folder: Path) -> None:
    (folder / "10.0.0.2").write_text("c0ffee\r\neth0")
    os.utime(folder / "10.0.0.2", (7, 1234.5))
    (folder / "lock").touch()

    first, second = entries(tmp_path, FOLDER)

    assert first == Entry("10.0.0.2", b"c0ffee\r\neth0", 1234.5)
    assert (second.name, second.content) == ("lock", b"")


def test_links_folders_and_pipes_are_skipped(tmp_path: Path, folder: Path) -> None:
    (folder / "link").symlink_to("/etc/passwd")
    (folder / "folder").mkdir()
    os.mkfifo(folder / "pipe")

    assert entries(tmp_path, FOLDER) == ()


def test_file_that_was_modified_before_a_time_is_not_read(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, modified in (("older", 99.5), ("newer", 100.0)):
        (folder / name).write_text(name)
        os.utime(folder / name, (7, modified))
    read, contents = os.read, list[bytes]()

    def note(fd: int, size: int) -> bytes:
        contents.append(read(fd, size))
        return contents[-1]

    monkeypatch.setattr(foreign_state_files.os, "read", note)

    assert entries(tmp_path, FOLDER, 100.0) == (Entry("newer", b"newer", 100.0),)
    assert contents == [b"newer"]


def test_absent_folder_has_no_entries(tmp_path: Path) -> None:
    assert entries(tmp_path, FOLDER) == ()


def test_absolute_link_in_the_path_is_followed_as_on_the_host(tmp_path: Path, folder: Path) -> None:
    (folder / "10.0.0.2").touch()
    (tmp_path / "state").symlink_to("/var/lib/cni/networks")

    assert [entry.name for entry in entries(tmp_path, "/state/cbr0")] == ["10.0.0.2"]


def test_file_is_removed_under_the_lock(tmp_path: Path, folder: Path, entry: Entry) -> None:
    assert remove(tmp_path, FOLDER, entry, "lock")

    assert sorted(path.name for path in folder.iterdir()) == ["lock"]


def test_changed_file_is_not_removed(tmp_path: Path, folder: Path, entry: Entry) -> None:
    (folder / "10.0.0.2").write_text("beef\r\neth0")

    assert not remove(tmp_path, FOLDER, entry, "lock")
    assert (folder / "10.0.0.2").exists()


@pytest.mark.parametrize("gone", ["file", "folder"])
def test_remove_succeeds_if_the_file_is_already_gone(tmp_path: Path, folder: Path, entry: Entry, gone: str) -> None:
    (folder / "10.0.0.2").unlink()
    if gone == "folder":
        folder.rmdir()

    assert remove(tmp_path, FOLDER, entry)


@pytest.fixture
def locked_by_another_program(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(foreign_state_files, "_LOCK_SECONDS", 0.05)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def test_file_is_not_removed_while_another_program_holds_the_lock(
    tmp_path: Path, folder: Path, entry: Entry, locked_by_another_program: None
) -> None:
    with pytest.raises(BlockingIOError, match="another program has held the lock"):
        remove(tmp_path, FOLDER, entry, "lock")

    assert (folder / "10.0.0.2").exists()
