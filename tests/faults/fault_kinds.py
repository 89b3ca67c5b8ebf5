"""The kinds of faults that are injected at a point: a process is killed or stopped, or the call fails."""

import os
import select
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from simnode.chaos.fault_points import CALLS
from simnode.chaos.syscall_supervisor import THREAD, CallWatch, Interference, Moment, Point

ERRORS = dict(CALLS.values())
_HALT_SECONDS = 0.2


class FaultKind(NamedTuple):
    """A kind of fault: its name in the matrix, its action, and the steps after it.

    Attributes:
        name: the name in the matrix.
        interfere: the action at the point.
        kills: the process that the fault kills; `itself` is the process that makes the call.
        back_first: the daemon starts again before the runtime's DEL, not after it.
        wakes: the daemon continues after the runtime's DEL.
        threads: True if the start of a thread is a point, too. It changes no state, so that only its failure matters.
        harmless: the request succeeds in spite of the fault.
        every: one of so many points is tried. It is more than 1 if the fault is that of another row at a moment in between.
    """

    name: str
    interfere: Interference
    kills: str = ""
    back_first: bool = False
    wakes: bool = False
    threads: bool = False
    harmless: bool = False
    every: int = 1

    def watch(self, process: str, number: int) -> CallWatch:
        """Return a watch that injects the fault at a point of a process."""
        return CallWatch(process, number, self.interfere, lambda point: self.threads or point.operand != THREAD)

    def kills_daemon(self, hit: Point | None) -> bool:
        """Return whether the fault has killed the daemon."""
        return hit is not None and "daemon" in (self.kills, hit.process if self.kills == "itself" else "")


def fail(moment: Moment) -> int:
    """Make the call fail."""
    return ERRORS[moment.point.call]


def kill(moment: Moment) -> None:
    """Kill the process that makes the call, before the call."""
    with suppress(ProcessLookupError):  # the process ends by itself, while another of its threads makes the call
        os.kill(moment.pid, signal.SIGKILL)


def kill_other(name: str) -> Callable[[Moment], int]:
    """Kill another process; the call is made after the death of that process."""

    def interfere(moment: Moment) -> int:
        with suppress(ProcessLookupError):
            pidfd = os.pidfd_open(moment.introduced[name])
            try:
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
                select.select([pidfd], (), ())
            finally:
                os.close(pidfd)
        return 0

    return interfere


def stop_daemon(moment: Moment) -> int:
    """Stop the daemon right after its call, and kill the executable as a runtime does after its time limit."""
    os.kill(moment.introduced["daemon"], signal.SIGSTOP)
    kill_other("executable")(moment)
    return 0


def halt_daemon(moment: Moment) -> int:
    """Stop the daemon right after its call, and continue it before any time limit."""
    pid = moment.introduced["daemon"]
    os.kill(pid, signal.SIGSTOP)
    threading.Timer(_HALT_SECONDS, os.kill, (pid, signal.SIGCONT)).start()
    return 0


KILLED = FaultKind("killed", kill, kills="itself")
KILLED_BACK_FIRST = FaultKind("killed, back before DEL", kill, kills="itself", back_first=True)
FAILED = FaultKind("call failed", fail, threads=True)
HALTED = FaultKind("stopped, woken in time", halt_daemon, harmless=True)
STOPPED = FaultKind("stopped, woken after DEL", stop_daemon, wakes=True)
EXECUTABLE_KILLED = FaultKind("executable killed", kill_other("executable"), kills="executable")
DAEMON_KILLED = FaultKind("daemon killed", kill_other("daemon"), kills="daemon", every=3)
