"""The file of a bundle: what is written is read, and what was made to do harm is refused with bounds."""

import errno
import gzip
import io
import json
import os
import re
import tarfile
import tracemalloc
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from railnet.bundle import archive, parts
from railnet.bundle.parts import BundleParts, LeftOut
from railnet.errors import Misconfigured

MANIFEST = json.dumps({"format": 1, "left_out": []}).encode()


def gathered() -> BundleParts:
    found = BundleParts(1 << 20)
    found.add("nodes/a/x.log", "line\n")
    found.add_json("cluster/doctor.json", {"findings": []})
    found.leave_out("nodes/b", "it does not answer")
    return found


def test_bundle_that_is_written_is_read(tmp_path: Path) -> None:
    fill(tmp_path / "b.tar.gz", gathered(), {"nodes": "all"})

    read = archive.read(tmp_path / "b.tar.gz")

    assert read.files.keys() == {"nodes/a/x.log", "cluster/doctor.json"}
    assert read.files["nodes/a/x.log"] == b"line\n"
    assert read.left_out == (LeftOut("nodes/b", "it does not answer"),)
    assert read.manifest["files"] == {"nodes/a/x.log": 5, "cluster/doctor.json": len(read.files["cluster/doctor.json"])}
    assert read.manifest["asked"] == {"nodes": "all"}
    assert (tmp_path / "b.tar.gz").stat().st_mode & 0o777 == 0o600
    assert [file.name for file in tmp_path.iterdir()] == ["b.tar.gz"]


def fill(path: Path, found: BundleParts, asked: Mapping[str, Any]) -> None:
    with archive.new(path) as file:
        archive.write(file, found, asked)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("missing/b.tar.gz", "the folder {}/missing does not exist; make it, or name another"),
        ("", "{} is a folder; name a file in it, such as {}/report.tar.gz"),
        ("file/b.tar.gz", "Not a directory; name a file in a folder in which you may write"),
        ("pipe", "is no regular file, and a bundle would replace it; name another file"),
        ("x" * 255, "File name too long"),
    ],
)
def test_path_that_cannot_be_is_said_before_anything_is_gathered(tmp_path: Path, name: str, words: str) -> None:
    (tmp_path / "file").write_text("")
    os.mkfifo(tmp_path / "pipe")

    with pytest.raises(Misconfigured, match=re.escape(words.format(tmp_path, tmp_path))), archive.new(tmp_path / name):
        pytest.fail("the path is wrong")
    assert {file.name for file in tmp_path.iterdir()} == {"file", "pipe"}


@pytest.mark.parametrize("path", [Path(), Path("/"), Path("..")])
def test_folder_by_another_name_is_a_folder(path: Path) -> None:
    with pytest.raises(Misconfigured, match="is a folder; name a file in it"), archive.new(path):
        pytest.fail("the path is wrong")


@pytest.mark.parametrize("function", ["os.open", "pathlib.Path.is_dir"])
def test_folder_that_the_user_may_not_use_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str
) -> None:
    def refused(*_: object) -> int:  # root may write anywhere
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(function, refused)
    with pytest.raises(Misconfigured, match="Permission denied; name a file in"), archive.new(tmp_path / "b"):
        pytest.fail("the path is wrong")


def test_error_while_the_parts_are_gathered_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "b.tar.gz").write_text("before")

    def gather() -> None:
        assert len(list(tmp_path.iterdir())) == 2
        raise OSError("x")

    with pytest.raises(OSError, match="x"), archive.new(tmp_path / "b.tar.gz"):
        gather()

    assert [file.name for file in tmp_path.iterdir()] == ["b.tar.gz"]
    assert (tmp_path / "b.tar.gz").read_text() == "before"


@pytest.mark.parametrize(
    ("name", "becomes"),
    [
        ("nodes/a/journal/0af@eth0.json", "nodes/a/journal/0af@eth0.json"),
        ("nodes/../../etc/passwd", "nodes/_/_/etc/passwd"),
        ("/etc//passwd", "etc/passwd"),
        ("conflists/10 a\x1b.conf", "conflists/10_a_.conf"),
    ],
)
def test_name_from_outside_becomes_one_that_is_read(tmp_path: Path, name: str, becomes: str) -> None:
    found = BundleParts(100)
    found.add(name, "x")
    fill(tmp_path / "b", found, {})

    assert list(archive.read(tmp_path / "b").files) == [becomes]


def entry(name: str, content: bytes = b"x", **changes: object) -> tuple[tarfile.TarInfo, bytes]:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    for key, value in changes.items():
        setattr(member, key, value)
    return member, content


def tar(path: Path, *entries: tuple[tarfile.TarInfo, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as written:
        for member, content in entries:
            written.addfile(member, io.BytesIO(content))
    return path


TOP = "railnet-bundle"
HOSTILE: dict[str, tuple[tuple[tarfile.TarInfo, bytes], ...]] = {
    "a path above": (entry(f"{TOP}/../../etc/cron.d/x"),),
    "a path from the root": (entry("/etc/passwd"),),
    "a path outside of the folder": (entry("other/x"),),
    "a path with dots inside": (entry(f"{TOP}/a/../b"),),
    "an escape in a name": (entry(f"{TOP}/a\x1b[2J"),),
    "a symbolic link": (entry(f"{TOP}/a", b"", type=tarfile.SYMTYPE, linkname="/etc/passwd"),),
    "a hard link": (entry(f"{TOP}/a", b"", type=tarfile.LNKTYPE, linkname="/etc/passwd"),),
    "a device": (entry(f"{TOP}/a", b"", type=tarfile.CHRTYPE),),
    "a pipe": (entry(f"{TOP}/a", b"", type=tarfile.FIFOTYPE),),
    "a file twice": (entry(f"{TOP}/a"), entry(f"{TOP}/a")),
    "a file that is too large": (entry(f"{TOP}/a", bytes(9 << 20)),),
    "no manifest": (entry(f"{TOP}/a"),),
    "a manifest that is no mapping": (entry(f"{TOP}/manifest.json", b"[]"),),
    "a manifest of another format": (entry(f"{TOP}/manifest.json", b'{"format": 2}'),),
    "a manifest with other lists": (entry(f"{TOP}/manifest.json", b'{"format": 1, "left_out": [1]}'),),
    "a manifest that is nested": (entry(f"{TOP}/manifest.json", b"[" * 100_000),),
}


@pytest.mark.parametrize("entries", HOSTILE.values(), ids=HOSTILE.keys())
def test_archive_with_something_else_is_refused(
    tmp_path: Path, entries: tuple[tuple[tarfile.TarInfo, bytes], ...]
) -> None:
    with pytest.raises(Misconfigured, match="give a file of `railnet bundle`"):
        archive.read(tar(tmp_path / "b", *entries))

    assert [file.name for file in tmp_path.iterdir()] == ["b"]


def a_folder(path: Path) -> None:
    path.mkdir()


def no_gzip(path: Path) -> None:
    path.write_bytes(b"PK\3\4")


def no_tar(path: Path) -> None:
    path.write_bytes(gzip.compress(b"x" * 5000))


def cut(path: Path) -> None:
    fill(path, gathered(), {})
    path.write_bytes(path.read_bytes()[:200])


def broken(path: Path) -> None:
    fill(path, gathered(), {})
    content = bytearray(path.read_bytes())
    content[100:120] = bytes(20)
    path.write_bytes(content)


@pytest.mark.parametrize("make", [a_folder, no_gzip, no_tar, cut, broken])
def test_file_that_is_no_archive_is_refused(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / "b")

    with pytest.raises(Misconfigured, match="give a file of `railnet bundle`"):
        archive.read(tmp_path / "b")


def test_archive_that_is_absent_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match="No such file"):
        archive.read(tmp_path / "b")


@pytest.mark.parametrize("kind", ["a long file", "a long header"])
def test_few_bytes_that_stand_for_very_many_are_not_read(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive, "_MOST_BYTES", 4 << 20)
    member = tarfile.TarInfo(f"{TOP}/a")
    member.size = 64 << 20
    if kind == "a long header":
        member.type = tarfile.XHDTYPE
    with gzip.open(tmp_path / "b", "wb") as written:
        written.write(member.tobuf())
        for _ in range(64):
            written.write(bytes(1 << 20))

    tracemalloc.start()
    try:
        with pytest.raises(Misconfigured):
            archive.read(tmp_path / "b")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 32 << 20


def test_text_that_is_too_long_and_a_bundle_that_is_full_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "MOST_FILE_BYTES", 10)
    found = BundleParts(15)

    found.add("long", "x" * 11)
    found.add("first", "x" * 10)
    found.add("second", "x" * 6)
    found.add("third", "x" * 5)

    assert found.texts.keys() == {"first", "third"}
    assert [entry.what for entry in found.left_out] == ["long", "second"]


@pytest.mark.parametrize(
    "answer", [{}, {"files": [], "left_out": []}, {"files": {"a": 1}, "left_out": []}, {"files": {}, "left_out": [1]}]
)
def test_answer_that_is_no_part_is_refused(answer: dict[str, object]) -> None:
    with pytest.raises((TypeError, ValueError)):
        BundleParts(10).take(answer, "nodes/a")


def test_what_cannot_be_read_costs_its_part_alone() -> None:
    def refuse() -> None:
        raise PermissionError(13, "Permission denied", "/x")

    def absent() -> None:
        raise FileNotFoundError(2, "No such file or directory", "/x")

    found = BundleParts(1000)
    found.attempt("refused.json", refuse)
    found.attempt("absent.json", absent)
    found.attempt("there.json", lambda: 1)

    assert json.loads(found.texts["absent.json"]) == {"absent": "/x"}
    assert found.texts["there.json"] == "1\n"
    assert [entry.what for entry in found.left_out] == ["refused.json"]
