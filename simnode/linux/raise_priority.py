"""Who must not wait for others: what stands for the kernel, and what holds the interpreter that it needs."""

import contextlib
import os
import threading

_NICE = -10


def raise_own() -> None:
    """Have the calling thread run before others where that is allowed; what it starts is as if it had not."""
    with contextlib.suppress(PermissionError):
        # For this thread alone: the kernel knows each thread as a process.
        os.sched_setscheduler(0, os.SCHED_OTHER | os.SCHED_RESET_ON_FORK, os.sched_param(0))
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)
