"""The records of prepared claims on disk."""

import logging
import os
from contextlib import suppress
from errno import EIO, EMFILE, ENFILE, ENOMEM
from pathlib import Path

import pytest

from railnet.dra import prepared_claim_files
from railnet.dra.claim import ClaimIdentity
from railnet.dra.prepared_claim_files import PreparedClaims, recorded
from tests.railnet.dra.claims import FIRST, SECOND, THIRD, a_prepared_claim, a_request

OTHER = a_prepared_claim(a_request("vf", THIRD), identity=ClaimIdentity("ml", "other", "c3d4"))


def test_claims_are_the_same_after_a_restart(tmp_path: Path) -> None:
    claims = PreparedClaims(tmp_path / "claims")
    claims.write(a_prepared_claim(a_request("vf", FIRST, SECOND)))
    claims.write(OTHER)
    again = PreparedClaims(tmp_path / "claims")

    assert (again.uids, len(again), again.get("c3d4")) == ({"a1b2", "c3d4"}, 2, OTHER)
    assert again.users == {
        FIRST: "claim ml/train-vf has it",
        SECOND: "claim ml/train-vf has it",
        THIRD: "claim ml/other has it",
    }
    assert again.users_but("a1b2") == {THIRD: "claim ml/other has it"}
    assert again.users_but("zz") == again.users


def test_removed_claim_is_gone_after_a_restart(tmp_path: Path) -> None:
    claims = PreparedClaims(tmp_path)
    claims.write(OTHER)
    users = claims.users
    claims.remove("c3d4")
    claims.remove("c3d4")

    assert (claims.get("c3d4"), claims.users, users is claims.users) == (None, {}, False)
    assert len(PreparedClaims(tmp_path)) == 0


def test_folder_is_there_only_while_it_has_a_record(tmp_path: Path) -> None:
    folder = tmp_path / "claims"
    claims = PreparedClaims(folder)
    at_start = folder.exists()
    claims.write(OTHER)
    written = folder.exists()
    claims.remove("c3d4")
    removed = folder.exists()
    folder.mkdir()  # of a version that kept it
    PreparedClaims(folder)

    assert (at_start, written, removed, folder.exists()) == (False, True, False, False)


def test_what_an_interrupted_write_left_is_removed(tmp_path: Path) -> None:
    temporary = tmp_path / ".a1b2.json.7.0"
    temporary.write_text("{")

    PreparedClaims(tmp_path)

    assert not temporary.exists()


@pytest.mark.parametrize("kind", ["cut short", "a copy", "a folder", "a link"])
def test_unreadable_record_is_put_aside_until_the_claim_is_unprepared(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    caplog.set_level(logging.ERROR)
    PreparedClaims(tmp_path).write(OTHER)
    record = tmp_path / "c3d4.json"
    broken = tmp_path / "a1b2.json"
    match kind:
        case "cut short":
            broken.write_bytes(record.read_bytes()[:-9])
        case "a copy":
            broken.write_bytes(record.read_bytes())
        case "a folder":
            broken.mkdir()
        case _:
            broken.symlink_to(record)

    claims = PreparedClaims(tmp_path)

    assert (claims.uids, (tmp_path / "a1b2.unreadable").exists()) == ({"c3d4"}, True)
    assert "a1b2.json, cannot be read" in caplog.text
    if kind != "a folder":
        claims.remove("a1b2")
        assert [path.name for path in tmp_path.iterdir()] == ["c3d4.json"]


def test_claim_that_cannot_be_written_is_not_prepared(tmp_path: Path) -> None:
    claims = PreparedClaims(tmp_path / "claims")
    (tmp_path / "claims").touch()

    with pytest.raises(FileExistsError):
        claims.write(OTHER)
    assert (claims.get("c3d4"), claims.users) == (None, {})


def test_disk_and_memory_are_the_same_when_the_folder_cannot_be_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_fd: int) -> None:
        raise OSError(EIO, "Input/output error")

    monkeypatch.setattr("os.fsync", refuse)
    claims = PreparedClaims(tmp_path)
    with suppress(OSError):
        claims.write(OTHER)

    assert claims.uids == PreparedClaims(tmp_path).uids


def test_containers_of_a_claim_got_what_each_request_has(tmp_path: Path) -> None:
    claims = PreparedClaims(tmp_path)
    claims.write(a_prepared_claim(a_request("a", FIRST, SECOND), a_request("b", THIRD)))

    first, second = claims.allocations("a1b2")

    assert (first.ids, second.ids) == ({str(FIRST), str(SECOND)}, {str(THIRD)})
    assert (first.device_nodes, first.envs["NCCL_IB_HCA"]) == ({"/dev/infiniband/uverbs1"}, "=a")
    assert claims.allocations("zz") == ()


def test_claim_of_an_unreadable_record_is_known_by_its_uid_until_it_is_unprepared(tmp_path: Path) -> None:
    PreparedClaims(tmp_path).write(OTHER)
    (tmp_path / "a1b2.json").write_text("{")
    claims = PreparedClaims(tmp_path)
    before = claims.uids_on_disk
    claims.remove("a1b2")

    assert (before, claims.uids_on_disk) == ({"a1b2", "c3d4"}, {"c3d4"})


@pytest.mark.parametrize("errno", [EMFILE, ENFILE, ENOMEM])
def test_shortage_of_the_daemon_puts_no_record_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, errno: int
) -> None:
    PreparedClaims(tmp_path).write(OTHER)

    def refuse(path: Path, most_bytes: int) -> bytes:
        raise OSError(errno, os.strerror(errno), str(path))

    with monkeypatch.context() as patch:
        patch.setattr(prepared_claim_files, "read_regular", refuse)
        with pytest.raises(OSError, match="c3d4"):
            PreparedClaims(tmp_path)

    assert PreparedClaims(tmp_path).uids == {"c3d4"}


def test_driver_is_needed_while_a_claim_is_prepared_or_its_record_unreadable(tmp_path: Path) -> None:
    needed = [PreparedClaims(tmp_path / "none").need_the_driver]
    (tmp_path / "a1b2.json").write_text("{")
    needed.append(PreparedClaims(tmp_path).need_the_driver)
    claims = PreparedClaims(tmp_path)
    claims.remove("a1b2")
    needed.append(claims.need_the_driver)
    claims.write(OTHER)
    needed.append(claims.need_the_driver)

    assert needed == [False, True, False, True]


def test_records_are_named_without_the_daemon(tmp_path: Path) -> None:
    PreparedClaims(tmp_path).write(OTHER)
    (tmp_path / "a1b2.unreadable").write_text("{")
    (tmp_path / ".a1b2.json.7.0").write_text("{")

    assert recorded(tmp_path) == ["a claim with the UID a1b2", "claim ml/other"]
    assert recorded(tmp_path / "none") == []
