"""Railnet's daemon under a supervisor of its system calls (`simnode.chaos.under_seccomp`).

The daemon is killed hundreds of times, and its imports take half a second, or ten seconds on an emulated processor. So each daemon is
forked from a server that has already imported them.
"""

import multiprocessing
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from simnode.chaos import under_seccomp
from simnode.daemon_process import Daemon
from simnode.linux.namespaces import MARK
from simnode.preinstalled_files import CONFIGURATION


class SupervisedDaemon(Daemon):
    """The daemon, supervised through the socket `supervisor` under the name `daemon`; without `starter` and `source`."""

    def __init__(self, supervisor: Path) -> None:
        super().__init__()
        self._supervisor = supervisor
        self._server = multiprocessing.get_context("forkserver")
        self._server.set_forkserver_preload(
            ["railnet.__main__", "railnet.daemon.composition", "railnet.strict_yaml", __name__]
        )

    def _begin(self) -> subprocess.Popen[bytes]:
        process = self._server.Process(target=_run, args=(str(self._supervisor), self.environment))
        process.start()
        return _Forked(process)


class _Forked(subprocess.Popen[bytes]):
    """A child of the fork server, with the part of Popen that `Daemon` and the tests use."""

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
            with suppress(ProcessLookupError):  # the fork server has reaped it, and has not said so yet
                os.kill(self.pid, sig)

    def __del__(self) -> None:
        """Do nothing: there are no pipes."""


def _run(supervisor: str, environment: dict[str, str]) -> None:
    from railnet.__main__ import main

    for name in {name for name in os.environ if name.startswith("KUBERNETES_")}:  # as Daemon.start does
        del os.environ[name]
    os.environ.update(environment)
    with (MARK / "railnet.log").open("ab") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    under_seccomp.begin(supervisor, "daemon")
    sys.argv = ["railnet", "node", "--no-supervisor", "--config", str(CONFIGURATION)]
    main()
