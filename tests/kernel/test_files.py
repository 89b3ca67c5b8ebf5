"""Files that a reader sees whole, old or new."""

import os
from pathlib import Path

import pytest

from kernel.files import below, write_atomically


def test_file_is_written_with_its_mode(tmp_path: Path) -> None:
    write_atomically(tmp_path / "a", b"new", 0o644)

    assert (tmp_path / "a").read_bytes() == b"new"
    assert (tmp_path / "a").stat().st_mode & 0o7777 == 0o644


def test_file_is_roots_alone_unless_told_otherwise(tmp_path: Path) -> None:
    write_atomically(tmp_path / "a", b"")

    assert (tmp_path / "a").stat().st_mode & 0o7777 == 0o600


def test_mode_does_not_depend_on_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        write_atomically(tmp_path / "a", b"", 0o755)
    finally:
        os.umask(before)

    assert (tmp_path / "a").stat().st_mode & 0o7777 == 0o755


def test_reader_that_has_the_old_file_open_keeps_it(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"old")

    with (tmp_path / "a").open("rb") as reader:
        write_atomically(tmp_path / "a", b"new")
        assert reader.read() == b"old"

    assert (tmp_path / "a").read_bytes() == b"new"


def test_nothing_but_the_file_is_left(tmp_path: Path) -> None:
    write_atomically(tmp_path / "a", b"new")

    assert [path.name for path in tmp_path.iterdir()] == ["a"]


@pytest.mark.parametrize("content", ["text", None], ids=["of another type", "missing"])
def test_old_content_stays_and_nothing_is_left_when_writing_fails(tmp_path: Path, content: object) -> None:
    (tmp_path / "a").write_bytes(b"old")

    with pytest.raises(TypeError):
        write_atomically(tmp_path / "a", content)

    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"old"]


def test_nothing_is_left_when_the_rename_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a/b").mkdir(parents=True)

    with pytest.raises(IsADirectoryError):
        write_atomically(tmp_path / "a", b"new")

    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_folder_that_is_missing_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        write_atomically(tmp_path / "missing/a", b"new")


@pytest.mark.parametrize(
    ("root", "absolute", "expected"),
    [("/proc/1/root", "/etc/cni", "/proc/1/root/etc/cni"), ("/", "/etc", "/etc"), ("/host", "//etc", "/host/etc")],
)
def test_below_finds_a_hosts_path_at_its_root(root: str, absolute: str, expected: str) -> None:
    assert below(Path(root), absolute) == Path(expected)
