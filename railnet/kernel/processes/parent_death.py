"""End with the parent process: nothing of a child goes on without the process that watches it."""

import ctypes
import os
import signal

_PR_SET_PDEATHSIG = 1  # include/uapi/linux/prctl.h


def die_with_parent() -> None:
    """Have the kernel send SIGKILL to this process when the parent's thread that made this process ends.

    It is not sent if the parent has ended before: the caller checks that afterwards.

    Raises:
        OSError: the kernel refused.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"prctl(PR_SET_PDEATHSIG): {os.strerror(error)}")
