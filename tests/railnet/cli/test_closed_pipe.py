"""A reader that ends first, as `head` does, is no error: real processes and real pipes."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from railnet.cli.closed_pipe import is_of_output
from railnet.cli.exit_status import ExitStatus

pytestmark = pytest.mark.slow  # each test starts a process

# A command whose answer is longer than a pipe holds (64 KiB), so that the reader is gone before all is written.
STATUS = """
import os, sys
from railnet.status import status_command
from railnet.__main__ import main
told = {"version": "1.2.3", "reasons": ["why"] * 100_000, "queue": 0, "rails": [], "vfs": [], "sandboxes": []}
status_command.ask = lambda path: told
os.geteuid = lambda: 0
main()
"""
# What a thread of `railnet train logs -f` writes.
LOGS = """
from railnet.apiserver import client
from railnet.cli import connection
from railnet.jobs.pod_progress import Stage
from railnet.jobs.train_job.task_states import TaskState
from railnet.train import logs
from railnet.__main__ import main

class Endless:
    def __init__(self, *_): pass
    def lines(self):
        while True:
            yield b"x" * 1000

connection.connect = lambda *_: None
logs.find = lambda *_: {"metadata": {"namespace": "ml"}}
logs.states = lambda *_: [TaskState("worker", number, Stage.RUNNING, pod="p") for number in range(3)]
logs.FollowedLog = Endless
main()
"""
SAY = """
from railnet.cli.messages import say
say("one")
say("two")
print("done")
"""


def piped(program: str, *arguments: str, reader: str = "head -1") -> subprocess.CompletedProcess[str]:
    """Run a program of Python with its output in a pipe to a reader, and return its own exit status."""
    line = f'"$0" -c "$1" "${{@:2}}" | {reader}; exit ${{PIPESTATUS[0]}}'
    return subprocess.run(
        ["bash", "-c", line, sys.executable, program, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.mark.parametrize("options", [["--json"], ["-o", "yaml"], []])
def test_report_ends_with_its_reader(options: list[str]) -> None:
    done = piped(STATUS, "status", *options)

    assert (done.returncode, done.stderr) == (ExitStatus.CLOSED_PIPE, "")
    assert done.stdout.count("\n") == 1


def test_report_that_is_read_to_its_end_has_its_own_status() -> None:
    done = piped(STATUS, "status", reader="cat")

    assert (done.returncode, done.stderr) == (ExitStatus.FAILED, "")
    assert done.stdout.startswith("railnet 1.2.3: not ready\n")


def test_logs_that_are_followed_end_with_their_reader() -> None:
    done = piped(LOGS, "train", "logs", "mnist", "-f")

    assert (done.returncode, done.stderr) == (ExitStatus.CLOSED_PIPE, "")
    assert done.stdout.count("\n") == 1


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["version"], ["completion", "bash"], ["train", "-h"]])
def test_what_is_shorter_than_a_pipe_ends_without_a_word_where_the_reader_is_gone_before(arguments: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as out:
        command = [sys.executable, "-m", "railnet", *arguments]
        done = subprocess.run(command, stdout=out, stderr=subprocess.PIPE, check=False, timeout=60)

    assert (done.returncode, done.stderr) == (ExitStatus.CLOSED_PIPE, b"")


def test_output_that_was_closed_before_the_start_is_no_error() -> None:
    command = f"exec {sys.executable} -m railnet version >&-"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False, timeout=60)

    assert (done.returncode, done.stderr) == (ExitStatus.OK, "")


def test_message_without_a_reader_does_not_end_what_the_command_does() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as closed:
        command = [sys.executable, "-c", SAY]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=closed, check=False, timeout=60)

    assert (done.returncode, done.stdout) == (0, b"done\n")


def test_connection_that_has_ended_is_another_error(tmp_path: Path) -> None:
    ours, theirs = socket.socketpair()
    theirs.close()
    with ours, pytest.raises(BrokenPipeError) as caught:
        ours.sendall(b"x")

    assert not is_of_output(caught.value)
