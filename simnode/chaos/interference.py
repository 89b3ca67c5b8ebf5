"""What may happen to a plugin while it runs, at a moment: it is killed, or its group, or what it has started."""

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
Act = Callable[[Process], bool]  # gives whether it happened
Victim = Literal["executable", "process group", "delegate"]
_PATIENCE_SECONDS = 0.5
_LOOK_SECONDS = 0.001


class Meddling:
    """Acts once, so many seconds after the plugin has started; a context manager around its run.

    Attributes:
        happened: whether it acted, known after the block.
    """

    def __init__(self, seconds: float, act: Act) -> None:
        self._seconds, self._act = seconds, act
        self._timer: threading.Timer | None = None
        self.happened = False

    def started(self, process: Process) -> None:
        """Begin to wait."""
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
    """Kill a plugin alone, its process group, or something that it has started; tells whether there was something to kill.

    What is started lives in a group of its own, and goes on without the plugin. `pick`, from 0 to 1, chooses one of it.
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
    with contextlib.suppress(ProcessLookupError):  # who waits for it, in another thread, has reaped it meanwhile
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
    """Return the processes that a process has started, parents first."""
    found: list[int] = []
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return found
    for child in map(int, children):
        found += [child, *descendants(child)]
    return found
