"""A higher scheduling priority for threads that simulate the kernel, and for threads that hold the interpreter which those need."""

import contextlib
import os
import threading

_NICE = -10


def raise_own() -> None:
    """Raise the priority of the calling thread, if that is permitted; its children have the normal priority."""
    with contextlib.suppress(PermissionError):
        # The kernel takes a thread id for a process id, so that only this thread changes.
        os.sched_setscheduler(0, os.SCHED_OTHER | os.SCHED_RESET_ON_FORK, os.sched_param(0))
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)
