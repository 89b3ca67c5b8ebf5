"""Run a program of the host in the host's mount and network namespaces. The daemon itself may run in a container."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, NamedTuple

_ON_THE_HOST = Path("/")
_STOP_CHECK_SECONDS = 0.1  # how soon a program is ended once its caller has stopped it
# A separate program, not a function between fork and exec: there, other threads may hold locks.
_ENTER = (sys.executable, "-ISE", str(Path(__file__).with_name("host_entry.py")))


class Stopped(Exception):
    """A program was ended, or not started, because its caller set the event `stopped`."""


class Terms(NamedTuple):
    """Limits of one run: seconds until the program is ended, an event that ends it earlier, descriptors that it inherits."""

    seconds: float
    stopped: threading.Event | None = None
    inherited: tuple[int, ...] = ()


class ProgramEnd(NamedTuple):
    """The end of a program: its wait status, as `os.waitstatus_to_exitcode` reads it, and its output."""

    status: int
    stdout: bytes
    stderr: bytes


def execute(
    root: Path, program: str, environ: Mapping[str, str], stdin: bytes, terms: Terms, *, chroot: bool = False
) -> ProgramEnd:
    """Run a program by its absolute path on the host. `root` is the path of the host's root for the daemon: / or /proc/1/root.

    The program and its children are ended when the time is over. With `chroot` the program sees the host's files and keeps
    the daemon's namespaces; that needs only CAP_SYS_CHROOT.

    Raises:
        TimeoutError: the program took too long and was ended. Stopped: the caller set `terms.stopped`. OSError: the program
            cannot be executed, if `root` is /; for any other `root` the exit status is then 126.
    """
    command = (program,) if root == _ON_THE_HOST else (*_ENTER, "chroot" if chroot else "enter", str(root), program)
    if _is_stopped(terms):
        raise Stopped(f"{program} was not run")
    pipe = subprocess.PIPE
    with (
        # A file, because communicate() loses the unsent part of its input when it is called again.
        os.fdopen(os.memfd_create("stdin"), "r+b") as stdin_file,
        subprocess.Popen(
            command,
            env=dict(environ),
            stdin=_filled(stdin_file, stdin),
            stdout=pipe,
            stderr=pipe,
            start_new_session=True,
            pass_fds=terms.inherited,
        ) as process,
    ):
        try:
            stdout, stderr = _read_output(process, terms)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            if _is_stopped(terms):
                raise Stopped(f"{program} was ended") from None
            raise TimeoutError(f"{program} took longer than {terms.seconds:g} s and was ended") from None
    code = process.returncode
    return ProgramEnd(-code if code < 0 else code << 8, stdout, stderr)


def _filled(file: BinaryIO, content: bytes) -> BinaryIO:
    """Write `content` to a file and return the file, at its beginning."""
    file.write(content)
    file.seek(0)
    return file


def _read_output(process: subprocess.Popen[bytes], terms: Terms) -> tuple[bytes, bytes]:
    """Return a program's stdout and stderr when it has ended.

    Raises:
        subprocess.TimeoutExpired: its time is over, or its caller has stopped it.
    """
    give_up = time.monotonic() + terms.seconds
    while True:
        remaining = give_up - time.monotonic()
        try:
            return process.communicate(timeout=min(remaining, _STOP_CHECK_SECONDS))
        except subprocess.TimeoutExpired:
            if remaining <= _STOP_CHECK_SECONDS or _is_stopped(terms):
                raise


def _is_stopped(terms: Terms) -> bool:
    return terms.stopped is not None and terms.stopped.is_set()
