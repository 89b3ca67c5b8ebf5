"""What a stopped process still holds: its sockets are shut down and its lock is released while the process exists."""

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from railnet.kernel.processes.pidfd_getfd import HeldDescriptors
from tests.waiting import until

SECONDS = 30.0
STOP = "os.kill(os.getpid(), signal.SIGSTOP)"


@contextmanager
def stopped(program: str, argument: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program that stops itself at its end."""
    command = [sys.executable, "-c", f"import fcntl, os, signal, socket, sys\n{program}\n{STOP}", argument]
    with subprocess.Popen(command) as process:
        try:
            yield process
        finally:
            process.kill()


def wait_for_stop(process: "subprocess.Popen[bytes]") -> None:
    status = Path(f"/proc/{process.pid}/status")
    until(lambda: "State:\tT" in status.read_text(), SECONDS, "the stop")


def test_sockets_of_a_stopped_process_are_shut_down_while_it_exists(tmp_path: Path) -> None:
    path = str(tmp_path / "socket")
    program = (
        "server = socket.socket(socket.AF_UNIX); server.bind(sys.argv[1]); server.listen()\n"
        "accepted, _ = server.accept(); accepted.send(b'x')"
    )
    with stopped(program, path) as process, socket.socket(socket.AF_UNIX) as client:
        client.settimeout(SECONDS)
        until(lambda: client.connect_ex(path) == 0, SECONDS, "the connection")
        assert client.recv(1) == b"x"
        wait_for_stop(process)

        held = HeldDescriptors(process.pid)
        shut_down = held.shut_down_sockets()
        held.close()

        with socket.socket(socket.AF_UNIX) as late:
            refused = late.connect_ex(path)
        assert (shut_down, client.recv(1), process.poll()) == (2, b"", None)
        assert refused != 0


def test_socket_that_this_process_has_too_is_left_alone() -> None:
    ours, theirs = socket.socketpair()
    with (
        ours,
        theirs,
        subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, stderr=theirs) as process,
    ):
        held = HeldDescriptors(process.pid)
        shut_down = held.shut_down_sockets()
        held.close()
        process.kill()

        assert shut_down == 0
        assert theirs.send(b"x") == 1


def test_lock_of_a_stopped_process_is_released(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    take = ["flock", "--nonblock", path, "true"]
    with stopped("file = open(sys.argv[1], 'w'); fcntl.flock(file, fcntl.LOCK_EX)", str(path)) as process:
        wait_for_stop(process)
        before = subprocess.run(take, check=False).returncode

        held = HeldDescriptors(process.pid, {str(path)})
        held.unlock_files()
        held.close()

        assert (before, subprocess.run(take, check=False).returncode, process.poll()) == (1, 0, None)


def test_process_that_is_gone_is_an_error() -> None:
    with subprocess.Popen(["true"]) as process:
        process.wait()

    with pytest.raises(OSError, match="No such"):
        HeldDescriptors(process.pid)
