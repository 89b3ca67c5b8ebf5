"""A command runs with standard streams that were closed before it started, and in any locale: real processes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from railnet.cli.exit_status import ExitStatus

pytestmark = pytest.mark.slow  # each test starts a process

JOB = "kind: pytorch\nname: resnet\nimage: r/t:1\nworkers: 1\n"


def run(closed: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run railnet with streams closed as a shell writes it, such as `>&-`."""
    line = f'"$0" -m railnet "$@" {closed}'
    return subprocess.run(
        ["bash", "-c", line, sys.executable, *arguments], capture_output=True, text=True, check=False, timeout=60
    )


@pytest.mark.parametrize(
    "arguments", [["train", "up", "--dry-run=client", "-f", "-"], ["admission", "explain", "-f", "-"]]
)
def test_closed_standard_input_is_an_empty_file(arguments: list[str]) -> None:
    done = run("<&-", *arguments)

    assert done.returncode == ExitStatus.MISCONFIGURED
    assert "Traceback" not in done.stderr


def test_closed_standard_input_is_an_empty_configuration() -> None:
    done = run("<&-", "config", "check", "-")

    assert (done.returncode, done.stdout, done.stderr) == (ExitStatus.OK, "stdin: the daemon accepts it\n", "")


def test_command_with_a_closed_standard_output_ends_with_its_status(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(JOB)

    done = run(">&-", "train", "up", "--dry-run=client", "-f", str(tmp_path / "job.yaml"))

    assert (done.returncode, done.stderr) == (ExitStatus.OK, "")


def test_error_is_not_written_to_standard_output_where_standard_error_is_closed(tmp_path: Path) -> None:
    done = run("2>&-", "train", "up", "--dry-run=client", "-f", str(tmp_path / "none.yaml"))

    assert (done.returncode, done.stdout) == (ExitStatus.MISCONFIGURED, "")


def test_command_runs_with_all_streams_closed() -> None:
    assert run("<&- >&- 2>&-", "version").returncode == ExitStatus.OK


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_output_is_utf_8_in_a_locale_that_lacks_characters(encoding: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "railnet", "train", "init", "pytorch"],
        capture_output=True,
        check=False,
        timeout=60,
        env={**os.environ, "PYTHONIOENCODING": encoding},
    )

    assert (done.returncode, done.stderr) == (ExitStatus.OK, b"")
    assert "mnist-worker-1, …" in done.stdout.decode()
