"""The journal: memory and disk are the same, and an unreadable record is moved to quarantine."""

import errno
import logging
import os
from collections.abc import Callable
from dataclasses import replace
from errno import EMFILE, ENFILE, ENOMEM
from ipaddress import ip_interface
from pathlib import Path

import pytest

from cni.attachment import journal as journals
from cni.attachment.journal import Journal
from railnet.vf.record import LostRecord, decode, encode
from tests.railnet.vf.builders import FIRST, SECOND, a_record, an_attachment

RECORD = a_record(an_attachment(addresses=(ip_interface("10.56.3.1/16"), ip_interface("fd56::1/64"))))
OTHER = a_record(
    an_attachment(ifname="net2", vf=SECOND, addresses=(ip_interface("10.56.131.1/17"),)), container_id="other"
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "journal"


def a_journal(folder: Path) -> Journal:
    return Journal(folder, folder.parent / "quarantine")


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_journal_makes_its_folders_with_access_for_root_alone(folder: Path) -> None:
    a_journal(folder)

    assert [path.stat().st_mode & 0o777 for path in (folder, folder.parent / "quarantine")] == [0o700, 0o700]


def test_record_is_on_disk_when_write_returns(folder: Path) -> None:
    a_journal(folder).write(RECORD)

    assert files(folder) == ["c0ffee@eth0.json"]
    assert decode((folder / "c0ffee@eth0.json").read_bytes()) == RECORD
    assert (folder / "c0ffee@eth0.json").stat().st_mode & 0o777 == 0o600


def test_records_are_there_after_a_restart(folder: Path) -> None:
    before = a_journal(folder)
    before.write(RECORD)
    before.write(OTHER)

    after = a_journal(folder)

    assert {record.key: record for record in after.records()} == {"c0ffee@eth0": RECORD, "other@eth0": OTHER}


def test_write_replaces_the_record_of_the_same_sandbox(folder: Path) -> None:
    journal = a_journal(folder)
    journal.write(RECORD)

    journal.write(replace(RECORD, stage="attached"))

    assert journal.get("c0ffee@eth0") == a_journal(folder).get("c0ffee@eth0") == replace(RECORD, stage="attached")


def test_remove_removes_in_memory_and_on_disk(folder: Path) -> None:
    journal = a_journal(folder)
    journal.write(RECORD)

    journal.remove(RECORD)

    assert (list(journal.records()), files(folder)) == ([], [])


def test_remove_of_a_removed_record_does_nothing(folder: Path) -> None:
    a_journal(folder).remove(RECORD)


def test_get_finds_no_record_of_an_unknown_sandbox(folder: Path) -> None:
    assert a_journal(folder).get("c0ffee@eth0") is None


def test_memory_is_as_before_when_the_disk_refuses(folder: Path) -> None:
    journal = a_journal(folder)
    folder.rmdir()

    with pytest.raises(FileNotFoundError):
        journal.write(RECORD)

    assert list(journal.records()) == []


@pytest.mark.parametrize(
    "content",
    [b"", encode(RECORD)[:-20], encode(RECORD).replace(b"planned", b"attached"), b"\0" * 4096],
    ids=["empty", "truncated", "changed", "zeros"],
)
def test_unreadable_record_is_moved_to_quarantine(folder: Path, caplog, content: bytes) -> None:
    a_journal(folder).write(OTHER)
    (folder / "c0ffee@eth0.json").write_bytes(content)

    with caplog.at_level(logging.ERROR):
        journal = a_journal(folder)

    assert [record.key for record in journal.records()] == ["other@eth0"]
    assert files(folder) == ["other@eth0.json"]
    assert (folder.parent / "quarantine/c0ffee@eth0.json").read_bytes() == content
    assert "c0ffee@eth0.json cannot be read" in caplog.text


def test_copy_of_a_record_is_moved_to_quarantine_and_the_record_stays(folder: Path) -> None:
    a_journal(folder).write(RECORD)
    copy = folder / "c0ffee@eth0-before.json"
    copy.write_bytes((folder / "c0ffee@eth0.json").read_bytes())

    assert a_journal(folder).records() == (RECORD,)
    assert files(folder) == ["c0ffee@eth0.json"]
    assert (folder.parent / "quarantine" / copy.name).exists()


def test_file_that_is_no_record_is_left_alone(folder: Path) -> None:
    a_journal(folder)
    (folder / "README").write_bytes(b"about")

    assert list(a_journal(folder).records()) == []
    assert files(folder) == ["README"]


def test_temporary_that_a_crash_left_is_removed_at_start_and_no_record_with_it(folder: Path) -> None:
    a_journal(folder).write(RECORD)
    (folder / ".c0ffee@eth0.json.x1y2z3").write_bytes(b"half a rec")
    (folder / ".other@eth0.json").write_bytes(encode(OTHER))

    assert [record.key for record in a_journal(folder).records()] == ["c0ffee@eth0"]
    assert files(folder) == ["c0ffee@eth0.json"]


@pytest.mark.parametrize(("vf", "key"), [(FIRST, "c0ffee@eth0"), (SECOND, "other@eth0")])
def test_holder_is_the_record_with_the_vf(folder: Path, vf, key: str) -> None:
    journal = a_journal(folder)
    journal.write(RECORD)
    journal.write(OTHER)

    assert journal.holder(vf).key == key


def test_free_vf_has_no_holder(folder: Path) -> None:
    journal = a_journal(folder)
    journal.write(RECORD)

    assert journal.holder(SECOND) is None


def test_addresses_are_those_of_every_rail_of_every_sandbox(folder: Path) -> None:
    journal = a_journal(folder)
    journal.write(RECORD)
    journal.write(OTHER)

    assert sorted(map(str, journal.addresses())) == ["10.56.131.1", "10.56.3.1", "fd56::1"]


def test_addresses_are_free_again_when_the_record_is_gone(folder: Path) -> None:
    journal = a_journal(folder)
    journal.write(RECORD)

    journal.remove(RECORD)

    assert journal.addresses() == frozenset()


def test_lost_records_name_the_sandboxes_of_unreadable_records_over_every_restart(folder: Path) -> None:
    a_journal(folder)
    (folder / "c0ffee@eth0.json").write_bytes(encode(RECORD)[:-20])

    first, second = a_journal(folder).lost_records, a_journal(folder).lost_records

    assert first == second == (LostRecord("c0ffee", "eth0", RECORD.netns, RECORD.pod),)


def full_folder(path: Path) -> None:
    (path / "inside").mkdir(parents=True)


ODD_FILES = {
    "folder": Path.mkdir,
    "folder with a file": full_folder,
    "named pipe": os.mkfifo,
    "link to itself": lambda path: path.symlink_to(path),
    "link with a long name": lambda path: path.symlink_to("x" * 300),
}


@pytest.mark.parametrize("make", ODD_FILES.values(), ids=list(ODD_FILES))
def test_odd_file_in_the_place_of_a_record_is_put_aside_and_costs_no_other(
    folder: Path, caplog: pytest.LogCaptureFixture, make: Callable[[Path], None]
) -> None:
    a_journal(folder).write(RECORD)
    make(folder / "odd@eth0.json")

    first, second = a_journal(folder), a_journal(folder)

    assert [list(journal.records()) for journal in (first, second)] == [[RECORD], [RECORD]]
    assert "odd@eth0.json cannot be read" in caplog.text
    assert files(folder) == ["c0ffee@eth0.json"]
    assert [lost.container_id for lost in second.lost_records] == ["odd"]


@pytest.mark.parametrize("make", [Path.mkdir, full_folder], ids=["folder", "folder with a file"])
def test_odd_file_in_the_place_of_a_temporary_file_is_left_alone(folder: Path, make: Callable[[Path], None]) -> None:
    a_journal(folder).write(RECORD)
    make(folder / ".odd")

    assert list(a_journal(folder).records()) == [RECORD]


def test_folder_that_cannot_be_put_aside_is_left_out(folder: Path) -> None:
    a_journal(folder).write(RECORD)
    full_folder(folder / "odd@eth0.json")
    full_folder(folder.parent / "quarantine/odd@eth0.json")

    assert list(a_journal(folder).records()) == [RECORD]


@pytest.mark.parametrize("error", [EMFILE, ENFILE, ENOMEM])
def test_record_is_not_put_aside_for_what_the_daemon_lacks(
    folder: Path, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    a_journal(folder).write(RECORD)

    def refuse(path: Path, _: int) -> bytes:
        raise OSError(error, os.strerror(error), str(path))

    with monkeypatch.context() as patched:
        patched.setattr(journals, "read_regular", refuse)
        with pytest.raises(OSError, match=os.strerror(error)):
            a_journal(folder)

    assert list(a_journal(folder).records()) == [RECORD]


def test_file_in_quarantine_whose_name_is_no_container_id_is_no_lost_record(folder: Path) -> None:
    a_journal(folder)
    (folder.parent / "quarantine/README").touch()

    assert a_journal(folder).lost_records == ()


def test_folder_in_quarantine_is_no_lost_record(folder: Path) -> None:
    a_journal(folder)
    (folder.parent / "quarantine/looked-at").mkdir()

    assert a_journal(folder).lost_records == ()


# A full disk: what is on disk already is changed in place.


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuse every new file, as a full file system does."""

    def refuse(path: Path, content: bytes) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    monkeypatch.setattr(journals, "write_atomically", refuse)


def test_record_on_a_full_disk_goes_through_all_stages_of_taking_back(folder: Path, request) -> None:
    journal = a_journal(folder)
    journal.write(RECORD)
    size = (folder / "c0ffee@eth0.json").stat().st_size
    request.getfixturevalue("full")
    seen = []

    for stage, attachments in (("attached", RECORD.attachments), ("detaching", RECORD.attachments), ("detaching", ())):
        journal.write(replace(RECORD, stage=stage, attachments=attachments))
        (after,) = a_journal(folder).records()
        seen.append((after.stage, after.attachments, (folder / "c0ffee@eth0.json").stat().st_size))

    assert seen == [
        ("attached", RECORD.attachments, size),
        ("detaching", RECORD.attachments, size),
        ("detaching", (), size),
    ]


def test_new_record_on_a_full_disk_is_refused_and_the_error_says_what_to_do(folder: Path, full: None) -> None:
    journal = a_journal(folder)

    with pytest.raises(OSError, match="df -i /run/railnet") as raised:
        journal.write(RECORD)

    assert raised.value.errno == errno.ENOSPC
    assert (list(journal.records()), files(folder)) == ([], [])


def test_record_that_becomes_longer_on_a_full_disk_stays_as_it_was(folder: Path, request) -> None:
    journal = a_journal(folder)
    journal.write(RECORD)
    request.getfixturevalue("full")

    with pytest.raises(OSError, match="No space left"):
        journal.write(replace(RECORD, network="x" * 5000))

    assert list(journal.records()) == list(a_journal(folder).records()) == [RECORD]
