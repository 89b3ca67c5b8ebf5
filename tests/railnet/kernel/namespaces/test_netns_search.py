"""The enumeration of the host's network namespaces, on files of the test's; real namespaces are the node tier's."""

from pathlib import Path

import pytest

from railnet.kernel.namespaces import netns_search
from railnet.vf.record import Netns


def namespaces(root: Path) -> list[Netns]:
    return [netns for netns, _ in netns_search.namespaces(root)]


def test_file_without_a_namespace_the_callers_own_and_an_ended_process_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "run/netns").mkdir(parents=True)
    (tmp_path / "run/netns/stale").touch()
    (tmp_path / "proc/7/ns").mkdir(parents=True)
    (tmp_path / "proc/7/ns/net").symlink_to("/proc/self/ns/net")
    (tmp_path / "proc/8").mkdir()
    (tmp_path / "proc/self").mkdir()

    assert namespaces(tmp_path) == []


def test_namespace_of_a_process_is_found_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "proc/7/ns").mkdir(parents=True)
    (tmp_path / "proc/7/ns/net").touch()
    (tmp_path / "proc/8/ns").mkdir(parents=True)
    (tmp_path / "proc/8/ns/net").hardlink_to(tmp_path / "proc/7/ns/net")
    facts = (tmp_path / "proc/7/ns/net").stat()
    monkeypatch.setattr(netns_search, "_OWN", str(tmp_path))  # another inode of the same device

    (found,) = namespaces(tmp_path)

    assert tmp_path.stat().st_dev == facts.st_dev
    assert found in [Netns(f"/proc/{number}/ns/net", facts.st_dev, facts.st_ino) for number in (7, 8)]


def test_host_whose_processes_cannot_be_seen_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        namespaces(tmp_path)


@pytest.mark.parametrize("passed_over", [False, True])
def test_namespace_that_cannot_be_opened_is_an_error_unless_it_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, passed_over: bool
) -> None:
    (tmp_path / "proc/7").mkdir(parents=True)

    def refuse(root: Path, path: str) -> int:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(netns_search, "_open", refuse)

    if passed_over:
        assert list(netns_search.namespaces(tmp_path, (OSError,))) == []
    else:
        with pytest.raises(PermissionError):
            namespaces(tmp_path)
