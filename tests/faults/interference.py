"""What is done to a node at a point: a process is killed or stopped, a call fails."""

import os
import select
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from simnode.chaos.syscall_supervisor import THREAD, Interference, Moment, Point, Watch
from simnode.chaos.syscalls import CALLS

ERRORS = dict(CALLS.values())
_HALT_SECONDS = 0.2


class How(NamedTuple):
    """A kind of fault: its words in the table, what it does, and what the node does afterwards.

    Attributes:
        kills: the process that dies of it; `itself` is the one that makes the call.
        back_first: the daemon is started again before the runtime's DEL, not after it.
        wakes: the daemon is woken after the runtime's DEL.
        threads: whether the making of a thread is a point, too: it may fail, and else changes nothing.
        harmless: the request succeeds all the same.
        every: of how many points one is tried; more than one where the fault is that of another row, at a moment in between.
    """

    words: str
    interfere: Interference
    kills: str = ""
    back_first: bool = False
    wakes: bool = False
    threads: bool = False
    harmless: bool = False
    every: int = 1

    def watch(self, process: str, number: int) -> Watch:
        """Have it happen at a point of a process."""
        return Watch(process, number, self.interfere, lambda point: self.threads or point.operand != THREAD)

    def kills_daemon(self, hit: Point | None) -> bool:
        """Tell whether it has killed the daemon."""
        return hit is not None and "daemon" in (self.kills, hit.process if self.kills == "itself" else "")


def fail(moment: Moment) -> int:
    """Have the call fail."""
    return ERRORS[moment.point.call]


def kill(moment: Moment) -> None:
    """Kill the process that makes the call; it is not made."""
    with suppress(ProcessLookupError):  # it ends by itself, while another of its threads makes the call
        os.kill(moment.pid, signal.SIGKILL)


def kill_other(name: str) -> Callable[[Moment], int]:
    """Kill another process; who makes the call goes on when that one is dead."""

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
    """Stop the daemon as soon as its call is made; the runtime loses patience and kills the executable."""
    os.kill(moment.introduced["daemon"], signal.SIGSTOP)
    kill_other("executable")(moment)
    return 0


def halt_daemon(moment: Moment) -> int:
    """Stop the daemon as soon as its call is made, and wake it before anybody gives up."""
    pid = moment.introduced["daemon"]
    os.kill(pid, signal.SIGSTOP)
    threading.Timer(_HALT_SECONDS, os.kill, (pid, signal.SIGCONT)).start()
    return 0


KILLED = How("killed", kill, kills="itself")
KILLED_BACK_FIRST = How("killed, back before DEL", kill, kills="itself", back_first=True)
FAILED = How("call failed", fail, threads=True)
HALTED = How("stopped, woken in time", halt_daemon, harmless=True)
STOPPED = How("stopped, woken after DEL", stop_daemon, wakes=True)
EXECUTABLE_KILLED = How("executable killed", kill_other("executable"), kills="executable")
DAEMON_KILLED = How("daemon killed", kill_other("daemon"), kills="daemon", every=3)
