"""What a process of the tests takes: memory and processor time, as the kernel counts them."""

import os
import re
from pathlib import Path
from typing import NamedTuple

from tests.cluster.process import Program


class Used(NamedTuple):
    """A process's memory now and at most, in MiB (proc(5), VmRSS and VmHWM), and the seconds of processor time that it has used."""

    now: int
    most: int
    seconds: float


def used(program: Program) -> Used:
    """Read what a program's process has taken so far."""
    if program.process is None:
        raise RuntimeError(f"{program.name} does not run")
    return used_by(program.process.pid)


def used_by(process: int) -> Used:
    """Read what a process has taken so far.

    Raises:
        OSError, IndexError: the process has ended.
    """
    folder = Path(f"/proc/{process}")
    status = (folder / "status").read_text()
    now, most = (int(re.findall(rf"{key}:\s+(\d+)", status)[0]) >> 10 for key in ("VmRSS", "VmHWM"))
    user, system = (folder / "stat").read_text().rpartition(")")[2].split()[11:13]
    return Used(now, most, (int(user) + int(system)) / os.sysconf("SC_CLK_TCK"))
