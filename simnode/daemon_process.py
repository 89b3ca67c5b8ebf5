"""Railnet's daemon as a separate process, which is started and ended like the container of a DaemonSet.

The caller waits for the effects of a start or an end.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from simnode.preinstalled_files import CONFIGURATION

_LOG = Path("/run/simnode/railnet.log")
_STOP_SECONDS = 30.0


class DaemonFailed(RuntimeError):
    """Railnet's daemon ended or did not become ready; the message has the end of the daemon's log."""


class Daemon:
    """At most one daemon process; a restarted daemon appends to the same log.

    Attributes:
        environment: variables that kubelet would set. Those of the cluster in which this machine may be a pod are removed.
        starter: a command that executes the daemon, such as a tracer.
        source: the source tree whose `railnet` runs, for a test of two versions; None is the tree that this process runs from.
        supervised: whether the daemon runs under its supervisor, as in a container. By default it does not, so that a test can stop or
            kill the daemon, and none is there then.
        process: the daemon; if it is supervised, the supervisor.
    """

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None
        self.environment: dict[str, str] = {}
        self.starter: Sequence[str] = ()
        self.source: Path | None = None
        self.supervised = False

    def install(self) -> None:
        """Run `railnet install`.

        Raises:
            subprocess.CalledProcessError: the command failed; its stderr is in the error's note.
        """
        try:
            subprocess.run(
                _railnet("install"), cwd=self.source, env=self._environment(), check=True, capture_output=True
            )
        except subprocess.CalledProcessError as error:
            error.add_note(error.stderr.decode(errors="replace"))
            raise

    def start(self) -> None:
        """Start `railnet node`."""
        if self.process is not None and self.process.poll() is None:
            raise RuntimeError("cannot start the daemon: it runs already; stop it first")
        self.process = self._begin()

    def _begin(self) -> subprocess.Popen[bytes]:
        """Start the process and return it."""
        with open(_LOG, "ab") as log:
            environment = {
                key: value for key, value in self._environment().items() if not key.startswith("KUBERNETES_")
            }
            return subprocess.Popen(
                [*self.starter, *_railnet("node"), *self._options()],
                cwd=self.source,
                env={**environment, **self.environment},
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
            )

    def daemon_pid(self) -> int | None:
        """Return the daemon's pid; None if there is no daemon now, as before a supervisor has started it again."""
        if self.process is None or self.process.poll() is not None:
            return None
        if not self.supervised:
            return self.process.pid
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return int(children[-1]) if children else None

    def _options(self) -> Sequence[str]:
        knows_supervisor = self.source is None or any((self.source / "railnet/daemon").rglob("supervisor.py"))
        return () if self.supervised or not knows_supervisor else ("--no-supervisor",)

    def _environment(self) -> dict[str, str]:
        """Return this process's environment, in which Python finds `railnet` in the source tree."""
        return dict(os.environ) if self.source is None else {**os.environ, "PYTHONPATH": str(self.source)}

    def end(self, how: signal.Signals) -> int | None:
        """End the daemon by a signal, and by SIGKILL if it goes on; return its exit status, or None if there is no daemon."""
        daemon, self.process = self.process, None
        if daemon is None:
            return None
        daemon.send_signal(how)
        daemon.send_signal(signal.SIGCONT)  # a stopped process handles no other signal than SIGKILL
        try:
            return daemon.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            daemon.kill()
            return daemon.wait()

    def failure(self, what: object) -> DaemonFailed:
        """Return an error that names what failed, with the daemon's status and the end of its log."""
        status = None if self.process is None else self.process.poll()
        return DaemonFailed(f"{what}; the daemon's status is {status}; its log ends:\n{self.log()[-4000:]}")

    def log(self) -> str:
        """Return the whole log of all daemons on this node."""
        return _LOG.read_text(errors="replace") if _LOG.exists() else ""


def _railnet(command: str) -> list[str]:
    return [sys.executable, "-m", "railnet", command, "--config", str(CONFIGURATION)]
