"""Atomic writes, and reading of the host's files."""

import os
from errno import ELOOP
from itertools import count
from pathlib import Path

import pytest

from railnet.kernel import files
from railnet.kernel.files import below, followed, open_below, read_below, write_atomically
from tests.cni.host.shell_plugins import descriptors


def test_file_is_written_with_its_mode(tmp_path: Path) -> None:
    write_atomically(tmp_path / "a", b"new", 0o644)

    assert (tmp_path / "a").read_bytes() == b"new"
    assert (tmp_path / "a").stat().st_mode & 0o7777 == 0o644


def test_file_has_mode_0600_by_default(tmp_path: Path) -> None:
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


def test_no_temporary_file_is_left(tmp_path: Path) -> None:
    write_atomically(tmp_path / "a", b"new")

    assert [path.name for path in tmp_path.iterdir()] == ["a"]


@pytest.mark.parametrize("content", ["text", None], ids=["wrong type", "None"])
def test_old_content_stays_and_no_temporary_file_is_left_when_writing_fails(tmp_path: Path, content: object) -> None:
    (tmp_path / "a").write_bytes(b"old")

    with pytest.raises(TypeError):
        write_atomically(tmp_path / "a", content)

    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"old"]


def test_error_of_a_full_disk_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write

    def full(_: int, content: bytes) -> int:
        with Path("/dev/full").open("wb", buffering=0) as device:
            return write(device.fileno(), content)

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", full)
        with pytest.raises(OSError, match=r"No space left on device: '.*/record'"):
            write_atomically(tmp_path / "record", b"content")

    assert list(tmp_path.iterdir()) == []


def test_content_that_the_kernel_takes_in_parts_is_written_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = os.write

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", lambda fd, content: write(fd, bytes(content[:3])))
        write_atomically(tmp_path / "record", b"content")

    assert (tmp_path / "record").read_bytes() == b"content"


def test_temporary_file_of_another_process_with_the_same_number_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_numbers", count())
    others = tmp_path / f".record.{os.getpid()}.0"
    others.write_bytes(b"half of something")

    write_atomically(tmp_path / "record", b"content")

    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {
        "record": b"content",
        others.name: b"half of something",
    }


def test_no_temporary_file_is_left_when_the_rename_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a/b").mkdir(parents=True)

    with pytest.raises(IsADirectoryError):
        write_atomically(tmp_path / "a", b"new")

    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_missing_folder_is_not_created(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        write_atomically(tmp_path / "missing/a", b"new")


@pytest.mark.parametrize(
    ("root", "absolute", "expected"),
    [("/proc/1/root", "/etc/cni", "/proc/1/root/etc/cni"), ("/", "/etc", "/etc"), ("/host", "//etc", "/host/etc")],
)
def test_below_puts_a_hosts_path_under_its_root(root: str, absolute: str, expected: str) -> None:
    assert below(Path(root), absolute) == Path(expected)


LINKS = {
    "none": ("/opt/cni/bin", {}, "opt/cni/bin"),
    "absolute": ("/opt/cni/bin", {"opt": "/var/opt"}, "var/opt/cni/bin"),
    "relative": ("/snap/current/bin", {"snap/current": "9072"}, "snap/9072/bin"),
    "upwards": ("/a/b/c", {"a/b": "../d"}, "d/c"),
    "beyond the root": ("/a", {"a": "../../../d"}, "d"),
    "of a link": ("/a/x", {"a": "/b", "b": "/c"}, "c/x"),
    "dots": ("//a/./b/../c", {}, "a/c"),
}


@pytest.mark.parametrize(("path", "links", "expected"), LINKS.values(), ids=LINKS)
def test_links_are_followed_as_on_the_host(tmp_path: Path, path: str, links: dict[str, str], expected: str) -> None:
    for name, target in links.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).symlink_to(target)

    assert followed(tmp_path, path) == tmp_path / expected


def test_links_in_a_circle_are_an_error_that_names_the_path(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("/b")
    (tmp_path / "b").symlink_to("/a")

    with pytest.raises(OSError, match="/a/x") as raised:
        followed(tmp_path, "/a/x")

    assert raised.value.errno == ELOOP


# Reading of a host whose root is another folder.


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """Return a host's root with one file. The parent folder has another file, outside the host."""
    (tmp_path / "host/run").mkdir(parents=True)
    (tmp_path / "host/run/a").write_bytes(b"the host's")
    (tmp_path / "a").write_bytes(b"outside")
    return tmp_path / "host"


LINKS = {
    "absolute": "/run",
    "relative": "../run",
    "above the root": "../../../run",
    "to a link": "/var/again",
}


@pytest.mark.parametrize("link", LINKS.values(), ids=LINKS.keys())
def test_link_in_the_path_is_followed_as_on_the_host(host: Path, link: str) -> None:
    (host / "var").mkdir()
    (host / "var/again").symlink_to("/run")
    (host / "var/run").symlink_to(link)

    assert read_below(host, "/var/run/a") == b"the host's"


@pytest.mark.parametrize("path", ["/run/a", "//run/a", "run/a", "/../run/a", "/run/../../../run/a"])
def test_every_form_of_a_path_is_read_on_the_host(host: Path, path: str) -> None:
    assert read_below(host, path) == b"the host's"


@pytest.mark.parametrize("path", ["/../a", "/run/../../a", "/link"])
def test_file_outside_the_hosts_root_is_not_read(host: Path, path: str) -> None:
    (host / "link").symlink_to(host.parent / "a")

    with pytest.raises(FileNotFoundError) as raised:
        read_below(host, path)

    assert raised.value.filename == path


def test_link_to_the_hosts_root_is_followed(host: Path) -> None:
    (host.parent / "root").symlink_to("host")

    assert read_below(host.parent / "root", "/run/a") == b"the host's"


@pytest.mark.parametrize(
    ("path", "error"), [("/none", FileNotFoundError), ("/run/a/b", NotADirectoryError), ("/run", IsADirectoryError)]
)
def test_unreadable_file_raises_the_error_of_open(host: Path, path: str, error: type[OSError]) -> None:
    with pytest.raises(error):
        read_below(host, path)


def test_path_with_a_nul_is_refused(host: Path) -> None:
    with pytest.raises(ValueError, match="NUL"):
        read_below(host, "/run/a\0b")


def test_open_below_returns_one_descriptor_that_is_not_inherited(host: Path) -> None:
    before = set(descriptors())

    fd = open_below(host, "/run/a")

    opened, inheritable = set(descriptors()) - before, os.get_inheritable(fd)
    os.close(fd)
    assert (opened, inheritable) == ({str(fd)}, False)


def test_failed_open_leaves_no_descriptor(host: Path) -> None:
    before = descriptors()

    with pytest.raises(FileNotFoundError):
        open_below(host, "/none")

    assert descriptors() == before
