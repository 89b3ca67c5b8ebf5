"""Railnet's daemon as a process of its own, started and ended as a DaemonSet's container would be.

Waiting for what it does is its user's.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from simnode.host_files import CONFIGURATION

_LOG = Path("/run/simnode/railnet.log")
_STOP_SECONDS = 10.0


class DaemonFailed(RuntimeError):
    """Railnet's daemon ended or did not get ready; the message has the end of its log."""


class Daemon:
    """At most one daemon process; its log goes on over restarts.

    Attributes:
        environment: what kubelet would give it; nothing of the cluster that this machine may be a pod of.
        starter: a command that becomes the daemon, such as a tracer.
        source: the source tree whose `railnet` runs, for a test of two versions; None is the one that this process runs from.
    """

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None
        self.environment: dict[str, str] = {}
        self.starter: Sequence[str] = ()
        self.source: Path | None = None

    def install(self) -> None:
        """Run `railnet install`.

        Raises:
            subprocess.CalledProcessError: it failed; its stderr is in the note.
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
            raise RuntimeError("the daemon runs already: stop it first")
        with open(_LOG, "ab") as log:
            environment = {
                key: value for key, value in self._environment().items() if not key.startswith("KUBERNETES_")
            }
            self.process = subprocess.Popen(
                [*self.starter, *_railnet("node")],
                cwd=self.source,
                env={**environment, **self.environment},
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
            )

    def _environment(self) -> dict[str, str]:
        """Return this process's environment, in which Python finds `railnet` in the source tree."""
        return dict(os.environ) if self.source is None else {**os.environ, "PYTHONPATH": str(self.source)}

    def end(self, how: signal.Signals) -> int | None:
        """End it by a signal, and by SIGKILL when that does not; its status, None if there is none."""
        daemon, self.process = self.process, None
        if daemon is None:
            return None
        daemon.send_signal(how)
        daemon.send_signal(signal.SIGCONT)  # a stopped one must wake to be ended
        try:
            return daemon.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            daemon.kill()
            return daemon.wait()

    def failure(self, what: object) -> DaemonFailed:
        """Say what failed, with the daemon's status and the end of its log."""
        status = None if self.process is None else self.process.poll()
        return DaemonFailed(f"{what}; the daemon's status is {status}; its log ends:\n{self.log()[-4000:]}")

    def log(self) -> str:
        """Return all that it has said."""
        return _LOG.read_text(errors="replace") if _LOG.exists() else ""


def _railnet(command: str) -> list[str]:
    return [sys.executable, "-m", "railnet", command, "--config", str(CONFIGURATION)]
