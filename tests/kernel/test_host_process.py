"""Programs of the host's: what they get, how they end, and that none stays."""

import os
import time
from pathlib import Path

import pytest

from kernel.host_process import Ended, execute

ROOT = Path("/")
ENVIRON = {"PATH": "/usr/bin:/bin", "CNI_COMMAND": "DEL"}


def a_program(folder: Path, script: str) -> str:
    path = folder / "program"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def test_program_gets_stdin_and_its_environment_and_no_more(tmp_path: Path) -> None:
    program = a_program(tmp_path, "cat; echo >&2 $CNI_COMMAND $HOME.")

    assert execute(ROOT, program, ENVIRON, b"stdin", 5) == Ended(0, b"stdin", b"DEL .\n")


@pytest.mark.parametrize(("script", "code"), [("exit 3", 3), ("kill -9 $$", -9)])
def test_end_is_a_wait_status(tmp_path: Path, script: str, code: int) -> None:
    ended = execute(ROOT, a_program(tmp_path, script), ENVIRON, b"", 5)

    assert os.waitstatus_to_exitcode(ended.status) == code


def test_program_that_takes_too_long_is_ended_with_its_children(tmp_path: Path) -> None:
    program = a_program(tmp_path, f"sleep 60 & echo $! > {tmp_path}/child; wait")

    with pytest.raises(TimeoutError, match=r"took longer than 0\.5 s and was ended"):
        execute(ROOT, program, ENVIRON, b"", 0.5)

    assert has_ended(int((tmp_path / "child").read_text()))


def test_program_that_is_not_there_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        execute(ROOT, str(tmp_path / "missing"), ENVIRON, b"", 5)


def has_ended(pid: int) -> bool:
    give_up = time.monotonic() + 5
    while time.monotonic() < give_up:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state == "Z":
            return True
        time.sleep(0.01)
    return False
