"""Reads whether a program such as chronyd or systemd-timesyncd keeps the kernel's clock."""

import ctypes

_TIME_ERROR = 5  # "clock not synchronized": linux/timex.h, TIME_ERROR
_ROOM = 512  # bytes; struct timex has 208, all zero for a question: `modes` 0 changes nothing (adjtimex(2))


def is_synchronised() -> bool | None:
    """Return whether the clock is synchronised; None if the kernel does not say."""
    state: int = ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.create_string_buffer(_ROOM))
    return None if state < 0 else state != _TIME_ERROR
