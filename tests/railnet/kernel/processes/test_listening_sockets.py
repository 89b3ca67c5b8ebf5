"""The sockets on which a process listens, as the kernel shows them."""

import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from railnet.kernel.processes.listening_sockets import listening_paths

PROC = Path("/proc")


@pytest.fixture
def sockets() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def bound(stack: ExitStack, path: Path) -> socket.socket:
    made = stack.enter_context(socket.socket(socket.AF_UNIX))
    made.bind(str(path))
    return made


def of_this_process(folder: Path) -> set[str]:
    return {path for path in listening_paths(PROC, os.getpid()) if path.startswith(str(folder))}


def test_path_of_a_socket_that_listens_is_shown_once(sockets: ExitStack, tmp_path: Path) -> None:
    path = tmp_path / "with a blank.sock"
    server = bound(sockets, path)
    bound(sockets, tmp_path / "silent.sock")
    server.listen()
    client = sockets.enter_context(socket.socket(socket.AF_UNIX))
    client.connect(str(path))
    sockets.enter_context(server.accept()[0])

    assert [path for path in listening_paths(PROC, os.getpid()) if path.startswith(str(tmp_path))] == [str(path)]


def test_socket_of_another_process_is_not_shown(sockets: ExitStack, tmp_path: Path) -> None:
    bound(sockets, tmp_path / "own.sock").listen()
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as other:
        of_other = [path for path in listening_paths(PROC, other.pid) if path.startswith(str(tmp_path))]

    assert of_other == []
    assert of_this_process(tmp_path) == {str(tmp_path / "own.sock")}


def test_name_with_a_line_break_hides_no_other_socket(sockets: ExitStack, tmp_path: Path) -> None:
    bound(sockets, tmp_path / "a\nb").listen()
    bound(sockets, tmp_path / "own.sock").listen()

    assert str(tmp_path / "own.sock") in of_this_process(tmp_path)


def test_process_that_has_ended_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        list(listening_paths(tmp_path, 1))
