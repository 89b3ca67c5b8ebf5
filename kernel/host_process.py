"""Run a program of the host's, in its mount and network namespaces, from a daemon that may be in a container."""

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
_LOOK_SECONDS = 0.1  # how soon a program that is wanted no more is ended
# Not by a function between our fork and exec: other threads may hold locks there.
_ENTER = (sys.executable, "-ISE", str(Path(__file__).with_name("host_entry.py")))


class Stopped(Exception):
    """A program was ended, or not begun, because its caller does not want its result any more."""


class Terms(NamedTuple):
    """How long a program may take; what ends it before that, once it is set; which descriptors of ours it has, too."""

    seconds: float
    stopped: threading.Event | None = None
    inherited: tuple[int, ...] = ()


class Ended(NamedTuple):
    """How a program ended: a wait status, as `os.waitstatus_to_exitcode` reads it, and what it printed."""

    status: int
    stdout: bytes
    stderr: bytes


def execute(
    root: Path, program: str, environ: Mapping[str, str], stdin: bytes, terms: Terms, *, chroot: bool = False
) -> Ended:
    """Run a program of the host by its absolute path there; `root` is where the daemon sees the host: /, /proc/1/root.

    It is ended, with its children, when its time is over. With `chroot` it sees the host's files and keeps the daemon's
    namespaces, which takes CAP_SYS_CHROOT alone.

    Raises:
        TimeoutError: it was. Stopped: it was wanted no more. OSError: the program cannot be executed, where `root` is ours;
            elsewhere that is status 126.
    """
    command = (program,) if root == _ON_THE_HOST else (*_ENTER, "chroot" if chroot else "enter", str(root), program)
    if _is_stopped(terms):
        raise Stopped(f"{program} was not run")
    pipe = subprocess.PIPE
    with (
        # A file needs no writer: communicate() forgets what it has not sent when it is called again.
        os.fdopen(os.memfd_create("stdin"), "r+b") as fed,
        subprocess.Popen(
            command,
            env=dict(environ),
            stdin=_holding(fed, stdin),
            stdout=pipe,
            stderr=pipe,
            start_new_session=True,
            pass_fds=terms.inherited,
        ) as process,
    ):
        try:
            stdout, stderr = _heard(process, terms)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            if _is_stopped(terms):
                raise Stopped(f"{program} was ended") from None
            raise TimeoutError(f"{program} took longer than {terms.seconds:g} s and was ended") from None
    code = process.returncode
    return Ended(-code if code < 0 else code << 8, stdout, stderr)


def _holding(file: BinaryIO, content: bytes) -> BinaryIO:
    """Write a file and go back to its beginning."""
    file.write(content)
    file.seek(0)
    return file


def _heard(process: subprocess.Popen[bytes], terms: Terms) -> tuple[bytes, bytes]:
    """Return what a program prints until its end.

    Raises:
        subprocess.TimeoutExpired: its time is over, or it is wanted no more.
    """
    give_up = time.monotonic() + terms.seconds
    while True:
        left = give_up - time.monotonic()
        try:
            return process.communicate(timeout=min(left, _LOOK_SECONDS))
        except subprocess.TimeoutExpired:
            if left <= _LOOK_SECONDS or _is_stopped(terms):
                raise


def _is_stopped(terms: Terms) -> bool:
    return terms.stopped is not None and terms.stopped.is_set()
