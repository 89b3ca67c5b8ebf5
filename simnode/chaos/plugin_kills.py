"""Faults that hit a CNI plugin at a given moment of its run: the kill of the plugin, its process group, or a child process."""

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

Process = subprocess.Popen[bytes]
Act = Callable[[Process], bool]  # returns whether the fault happened
Victim = Literal["executable", "process group", "delegate"]
_PATIENCE_SECONDS = 0.5
_LOOK_SECONDS = 0.001


class DelayedFault:
    """One fault, which happens a number of seconds after the plugin has started; a context manager around the plugin's run.

    Attributes:
        happened: whether the fault happened; valid after the block.
    """

    def __init__(self, seconds: float, act: Act) -> None:
        self._seconds, self._act = seconds, act
        self._timer: threading.Timer | None = None
        self.happened = False

    def started(self, process: Process) -> None:
        """Start the timer."""
        self._timer = threading.Timer(self._seconds, self._run, (process,))
        self._timer.start()

    def _run(self, process: Process) -> None:
        self.happened = self._act(process)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer.join()


def kill(what: Victim, process: Process, pick: float) -> bool:
    """Kill a plugin, its process group, or one of its delegates; return whether there was a process to kill.

    A delegate is in another process group and goes on without the plugin. `pick`, from 0 to 1, chooses one delegate.
    """
    match what:
        case "executable":
            return _signalled(process, os.kill)
        case "process group":
            return _signalled(process, os.killpg)
        case "delegate":
            return _kill_delegate(process, pick)


def _signalled(process: Process, send: Callable[[int, int], None]) -> bool:
    if process.poll() is not None:
        return False
    with contextlib.suppress(ProcessLookupError):  # another thread has reaped the process meanwhile
        send(process.pid, signal.SIGKILL)
        return True
    return False


def _kill_delegate(process: Process, pick: float) -> bool:
    give_up = time.monotonic() + _PATIENCE_SECONDS
    while process.poll() is None and time.monotonic() < give_up:
        if started := descendants(process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(started[int(pick * (len(started) - 1) + 0.5)], signal.SIGKILL)
                return True
        time.sleep(_LOOK_SECONDS)
    return False


def descendants(pid: int) -> list[int]:
    """Return the ids of all descendants of a process, parents before their children."""
    found: list[int] = []
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return found
    for child in map(int, children):
        found += [child, *descendants(child)]
    return found
