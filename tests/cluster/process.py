"""One long-running program of the node, with its log."""

import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

_LOGS = Path("/run/cluster/log")
_STOP_SECONDS = 15.0
# A look by kubectl takes a fifth of a second of a processor. With a pause of twice its time, a wait takes a third of a processor at most.
_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS, _PAUSES_PER_LOOK = 0.1, 0.5, 2

_Found = TypeVar("_Found")


class NotReady(RuntimeError):
    """A program ended, or did not become ready; the message has the end of its log."""


class Program:
    """At most one process of a program; its log goes on over restarts.

    Attributes:
        options: further ones, from the next start on.
    """

    def __init__(self, command: Sequence[str | Path], env: Mapping[str, str] | None = None, name: str = "") -> None:
        """Describe the program; its log has the name of the command where `name` is empty."""
        self.name = name or Path(command[0]).name
        self._command, self._env = command, env
        self._log = _LOGS / f"{self.name}.log"
        self.options: Sequence[str] = ()
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        _LOGS.mkdir(parents=True, exist_ok=True)
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [*self._command, *self.options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._env,
                start_new_session=True,
            )

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """End it, by SIGKILL when another signal does not."""
        process, self.process = self.process, None
        if process is None:
            return
        process.send_signal(how)
        process.send_signal(signal.SIGCONT)  # a stopped one must wake to be ended
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def restart(self) -> None:
        self.stop()
        self.start()

    def wait(self, ready: Callable[[], bool], seconds: float) -> None:
        """Wait until it is ready; fails as soon as it has ended."""
        try:
            wait_until(lambda: self._ended() or ready(), seconds, f"{self.name} to be ready")
        except TimeoutError as error:
            raise self._failure(str(error)) from None
        if self._ended():
            raise self._failure(f"{self.name} has ended")

    def log(self) -> str:
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def _ended(self) -> bool:
        return self.process is None or self.process.poll() is not None

    def _failure(self, what: str) -> NotReady:
        return NotReady(f"{what}; its log ends:\n{self.log()[-4000:]}")


def logs() -> list[Path]:
    """Return the logs of all programs that have been started, also of those that have ended."""
    return sorted(_LOGS.glob("*.log"))


def wait_until(condition: Callable[[], bool], seconds: float, what: str) -> float:
    """Wait for something that no event tells of; gives how long it took."""
    began = time.monotonic()
    until_found(condition, seconds, what)
    return time.monotonic() - began


def until_found(look: Callable[[], _Found], seconds: float, what: str) -> _Found:
    """Wait until a look finds something, and return it: a second look may see what has changed since.

    Raises:
        TimeoutError: the last look, after so many seconds, found nothing.
    """
    began = looked = time.monotonic()
    while not (found := look()):
        now = time.monotonic()
        if now - began > seconds:
            raise TimeoutError(f"waited {seconds:g} s for {what}")
        time.sleep(min(max(_PAUSE_SECONDS, _PAUSES_PER_LOOK * (now - looked)), _LONGEST_PAUSE_SECONDS))
        looked = time.monotonic()
    return found
