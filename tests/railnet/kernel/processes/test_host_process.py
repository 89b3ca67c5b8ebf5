"""Programs on the host: their input and environment, their end, and that no child process survives."""

import os
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from railnet.kernel.processes import host_process
from railnet.kernel.processes.host_process import ProgramEnd, Stopped, Terms, execute
from tests.waiting import until

SECONDS = 60.0  # a busy machine starts and ends a program late
ROOT = Path("/")
ENVIRON = {"PATH": "/usr/bin:/bin", "CNI_COMMAND": "DEL"}


def a_program(folder: Path, script: str) -> str:
    path = folder / "program"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def test_program_gets_stdin_and_only_the_given_environment(tmp_path: Path) -> None:
    program = a_program(tmp_path, "cat; echo >&2 $CNI_COMMAND $HOME.")

    assert execute(ROOT, program, ENVIRON, b"stdin", Terms(SECONDS)) == ProgramEnd(0, b"stdin", b"DEL .\n")


@pytest.mark.parametrize(("script", "code"), [("exit 3", 3), ("kill -9 $$", -9)])
def test_status_is_a_wait_status(tmp_path: Path, script: str, code: int) -> None:
    ended = execute(ROOT, a_program(tmp_path, script), ENVIRON, b"", Terms(SECONDS))

    assert os.waitstatus_to_exitcode(ended.status) == code


def test_program_that_takes_too_long_is_ended_with_its_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = tmp_path / "begun"
    program = a_program(tmp_path, f"sleep 600 & echo $! > {tmp_path}/child; mv {tmp_path}/child {begun}; wait")
    start = iter((0.0,))  # of the time, though the child may run before the clock is read for the first time
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + next(start, SECONDS if begun.exists() else 0.0))
    monkeypatch.setattr(host_process, "time", clock)  # the time is over when the child runs

    with pytest.raises(TimeoutError, match="took longer than 60 s and was ended"):
        execute(ROOT, program, ENVIRON, b"", Terms(SECONDS))

    wait_for_end(int(begun.read_text()))


def test_program_that_reads_late_gets_all_of_a_large_stdin(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(host_process, "_STOP_CHECK_SECONDS", 0.05)  # several checks before the program reads
    stdin = os.urandom(400_000)

    ended = execute(ROOT, a_program(tmp_path, "sleep 0.2; exec cat"), ENVIRON, stdin, Terms(SECONDS))

    assert ended.stdout == stdin


def test_program_inherits_only_the_given_descriptors(tmp_path: Path) -> None:
    program = a_program(tmp_path, "readlink /proc/$$/fd/*")
    with (tmp_path / "lock").open("w") as lock, (tmp_path / "other").open("w") as other:
        os.set_inheritable(other.fileno(), True)

        ended = execute(ROOT, program, ENVIRON, b"", Terms(SECONDS, inherited=(lock.fileno(),)))

    assert str(tmp_path / "lock") in ended.stdout.decode().split()
    assert str(tmp_path / "other") not in ended.stdout.decode().split()


def test_stopped_program_is_ended_with_its_children_before_its_time(tmp_path: Path) -> None:
    program = a_program(tmp_path, f"sleep 60 & echo $! > {tmp_path}/child; mv {tmp_path}/child {tmp_path}/begun; wait")
    stopped = threading.Event()

    def stop() -> None:
        until((tmp_path / "begun").exists, SECONDS, "the program to start")
        stopped.set()

    thread = threading.Thread(target=stop)
    thread.start()
    with pytest.raises(Stopped, match="program was ended"):
        execute(ROOT, program, ENVIRON, b"", Terms(SECONDS, stopped))
    thread.join()

    wait_for_end(int((tmp_path / "begun").read_text()))


def test_program_that_is_stopped_before_its_start_is_not_run(tmp_path: Path) -> None:
    stopped = threading.Event()
    stopped.set()

    with pytest.raises(Stopped, match="was not run"):
        execute(ROOT, a_program(tmp_path, f"touch {tmp_path}/begun"), ENVIRON, b"", Terms(SECONDS, stopped))

    assert not (tmp_path / "begun").exists()


def test_missing_program_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        execute(ROOT, str(tmp_path / "missing"), ENVIRON, b"", Terms(SECONDS))


def wait_for_end(pid: int) -> None:
    until(lambda: has_ended(pid), SECONDS, f"the end of process {pid}")


def has_ended(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True
