"""A function runs in a child process: its value and its error come back, and what it does to the process does not."""

import os
import signal
import sys

import pytest

from railnet.errors import Misconfigured
from railnet.kernel.processes.forked_child import in_child


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


def test_child_that_is_killed_is_an_error() -> None:
    with pytest.raises(ChildProcessError, match="-9"):
        in_child(lambda: os.kill(os.getpid(), signal.SIGKILL))


def test_value_that_pickle_refuses_is_an_error_and_no_second_process_goes_on() -> None:
    first = os.getpid()

    with pytest.raises(ChildProcessError, match="status is 1"):
        in_child(lambda: lambda: None)

    assert os.getpid() == first
