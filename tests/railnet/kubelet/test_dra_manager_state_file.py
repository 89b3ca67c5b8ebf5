"""`dra_manager_state` as a file: it is parsed again only when it has changed."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from railnet.kubelet.dra_manager_state_file import DraManagerStateFile
from tests.railnet.kubelet.dra_state import a_claim, a_state

LONG_AGO_NS = 1_000_000_000_000_000_000


def opening(path: Path) -> Callable[[], int]:
    return lambda: os.open(path, os.O_RDONLY)


def write(path: Path, raw: bytes, mtime_ns: int = LONG_AGO_NS) -> None:
    """Replace the file by rename, as kubelet does."""
    new = path.with_name(".new")
    new.write_bytes(raw)
    os.utime(new, ns=(mtime_ns, mtime_ns))
    new.rename(path)


def test_file_is_parsed_again_only_when_it_has_changed(tmp_path: Path) -> None:
    path = tmp_path / "dra_manager_state"
    file = DraManagerStateFile(opening(path))
    write(path, a_state(a_claim()))
    first = file.read()
    again = file.read()
    write(path, a_state(a_claim("claim-2")), LONG_AGO_NS + 1)

    assert first is again
    assert [claim.claim_uid for claim in file.read()] == ["claim-2"]


def test_file_that_was_just_written_is_not_remembered(tmp_path: Path) -> None:
    path = tmp_path / "dra_manager_state"
    path.write_bytes(a_state(a_claim()))
    file = DraManagerStateFile(opening(path))

    assert file.read() is not file.read()


def test_no_claim_was_ever_prepared_where_there_is_no_file(tmp_path: Path) -> None:
    path = tmp_path / "dra_manager_state"
    file = DraManagerStateFile(opening(path))
    write(path, a_state(a_claim()))
    present = file.read()
    path.unlink()

    assert (len(present), file.read(), file.surely_names_none("uid-1")) == (1, (), False)


def test_file_that_is_not_there_although_claims_are_prepared_is_somewhere_else(tmp_path: Path) -> None:
    recorded = True
    file = DraManagerStateFile(opening(tmp_path / "dra_manager_state"), lambda: recorded)

    with pytest.raises(FileNotFoundError, match="this file is not in its root folder"):
        file.read()
    recorded = False
    assert file.read() == ()


def test_file_that_is_not_understood_is_asked_for_the_pods_uid(tmp_path: Path) -> None:
    path = tmp_path / "dra_manager_state"
    write(path, b'{"claims": ["uid-1 rdma.railnet.io"]}')
    file = DraManagerStateFile(opening(path))

    with pytest.raises(ValueError, match="not understood"):
        file.read()
    assert (file.surely_names_none("uid-1"), file.surely_names_none("uid-2")) == (False, True)
