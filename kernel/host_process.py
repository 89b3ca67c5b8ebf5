"""Run a program of the host's, in its mount and network namespaces, from a daemon that may be in a container."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

_ON_THE_HOST = Path("/")
# Not by a function between our fork and exec: other threads may hold locks there.
_ENTER = (sys.executable, "-ISE", str(Path(__file__).with_name("host_entry.py")))


class Ended(NamedTuple):
    """How a program ended: a wait status, as `os.waitstatus_to_exitcode` reads it, and what it printed."""

    status: int
    stdout: bytes
    stderr: bytes


def execute(
    root: Path, program: str, environ: Mapping[str, str], stdin: bytes, seconds: float, *, chroot: bool = False
) -> Ended:
    """Run a program of the host by its absolute path there; `root` is where the daemon sees the host: /, /proc/1/root.

    It is ended, with its children, when it takes longer than `seconds`. With `chroot` it sees the host's files and keeps the
    daemon's namespaces, which takes CAP_SYS_CHROOT alone.

    Raises:
        TimeoutError: it did. OSError: the program cannot be executed, where `root` is ours; elsewhere that is status 126.
    """
    command = (program,) if root == _ON_THE_HOST else (*_ENTER, "chroot" if chroot else "enter", str(root), program)
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, env=dict(environ), stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True
    ) as process:
        try:
            stdout, stderr = process.communicate(stdin, timeout=seconds)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise TimeoutError(f"{program} took longer than {seconds:g} s and was ended") from None
    code = process.returncode
    return Ended(-code if code < 0 else code << 8, stdout, stderr)
