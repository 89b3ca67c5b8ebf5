"""Railnet's daemon as it is, but killed by SIGKILL before its Nth change of the kernel or the journal.

It counts from the moment a number is in the file ARMED, so that starting and recovering count for nothing. Its imports
take seconds on an emulated processor, and it dies a dozen times: so each one is forked from a server that has them.
"""

import functools
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from simnode.daemon import Daemon
from simnode.host_files import CONFIGURATION
from simnode.namespaces import MARK

ARMED = Path("/run/killed-before")
REACHED = Path("/run/killed-at")  # which change was not made
_CHANGES = (
    ("kernel.rtnetlink", "Links", ("set_alias", "move_up", "move", "rename", "add_address", "set_up")),
    ("cni.journal", "Journal", ("write", "remove")),
)
_lock = threading.Lock()
_made = 0


def arm(changes: int) -> None:
    """Have the daemon die before it makes the change of this number, counted from 1 and from now."""
    REACHED.unlink(missing_ok=True)
    ARMED.write_text(str(changes))


class MortalDaemon(Daemon):
    """The daemon that can be armed."""

    def __init__(self) -> None:
        super().__init__()
        self._server = multiprocessing.get_context("forkserver")
        self._server.set_forkserver_preload(["railnet.__main__", "railnet.node", "tests.vm.killed"])

    def start(self) -> None:
        process = self._server.Process(target=_run)
        process.start()
        self.process = _Forked(process)


class _Forked(subprocess.Popen[bytes]):
    """A process of the server's, as far as `Daemon` and tests use a Popen."""

    def __init__(self, process: Any) -> None:
        self._process = process
        self.pid = process.pid
        self.returncode = None

    def poll(self) -> int | None:
        self.returncode = self._process.exitcode
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if self.poll() is None:
            raise subprocess.TimeoutExpired("railnet node", timeout or 0)
        return int(self.returncode)

    def send_signal(self, sig: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, sig)

    def __del__(self) -> None:
        """Do nothing: there are no pipes."""


def _run() -> None:
    from railnet.__main__ import main

    with (MARK / "railnet.log").open("ab") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    for module, owner, names in _CHANGES:
        __import__(module)
        kind = getattr(sys.modules[module], owner)
        for name in names:
            setattr(kind, name, _counted(name, getattr(kind, name)))
    sys.argv = ["railnet", "node", "--config", str(CONFIGURATION)]
    main()


def _counted(name: str, change: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(change)
    def counted(*arguments: Any, **named: Any) -> Any:
        _count(name)
        return change(*arguments, **named)

    return counted


def _count(what: str) -> None:
    global _made  # noqa: PLW0603 - a process has one count
    with _lock:
        if not ARMED.exists():
            return
        _made += 1
        if _made == int(ARMED.read_text()):
            ARMED.unlink()
            REACHED.write_text(what)
            os.kill(os.getpid(), signal.SIGKILL)
            threading.Event().wait()  # the signal may come to another thread first; this one goes no further
