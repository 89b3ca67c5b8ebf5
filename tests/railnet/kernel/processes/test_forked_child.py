"""A function runs in a child process: its value and its error come back, and what it does to the process does not."""

import os
import signal
import subprocess
import sys
from errno import EAGAIN
from pathlib import Path

import pytest

from railnet.errors import Misconfigured
from railnet.kernel.processes.forked_child import in_child

DESCRIPTORS = Path("/proc/self/fd")
SECONDS = 60.0
HANGS = """
import time
from railnet.kernel.processes.forked_child import in_child
in_child(lambda: (print("hangs", flush=True), time.sleep(600)))
"""


def test_value_comes_back_and_the_import_does_not() -> None:
    sys.modules.pop("this", None)

    def import_a_module() -> int:
        import this  # noqa: F401

        return os.getpid()

    assert in_child(import_a_module) != os.getpid()
    assert "this" not in sys.modules


@pytest.mark.parametrize("error", [Misconfigured("a key is wrong"), ModuleNotFoundError("no yaml", name="yaml")])
def test_error_comes_back(error: Exception) -> None:
    def refuse() -> None:
        raise error

    with pytest.raises(type(error), match=str(error)) as caught:
        in_child(refuse)

    assert getattr(caught.value, "name", None) == getattr(error, "name", None)
    assert "in refuse" in caught.value.__notes__[0]


def test_child_that_is_killed_is_an_error() -> None:
    with pytest.raises(ChildProcessError, match="-9"):
        in_child(lambda: os.kill(os.getpid(), signal.SIGKILL))


def test_value_that_pickle_refuses_is_an_error_and_no_second_process_goes_on() -> None:
    first = os.getpid()

    with pytest.raises(ChildProcessError, match="status is 1"):
        in_child(lambda: lambda: None)

    assert os.getpid() == first


def test_function_runs_in_this_process_where_the_kernel_refuses_another(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> int:
        raise BlockingIOError(EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr("os.fork", refuse)
    before = len([*DESCRIPTORS.iterdir()])

    assert in_child(os.getpid) == os.getpid()
    assert len([*DESCRIPTORS.iterdir()]) == before


def test_child_that_hangs_ends_with_its_parent() -> None:
    with subprocess.Popen([sys.executable, "-c", HANGS], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "hangs\n"
        parent.kill()

        assert parent.communicate(timeout=SECONDS)[0] == ""  # no process has the pipe any more
