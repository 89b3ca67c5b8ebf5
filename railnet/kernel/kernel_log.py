"""Reads /dev/kmsg: the kernel's log, a record for each read, from the moment of the opening on.

Source: Documentation/ABI/testing/dev-kmsg. A read never waits here. What the kernel overwrote before it was read is counted as lost.
"""

import os
import stat
from contextlib import suppress
from errno import EINVAL, EPIPE
from pathlib import Path
from typing import Self

_LONGEST_RECORD = 8192  # CONSOLE_EXT_LOG_MAX, kernel/printk/printk.c, of Linux before 6.3; since then 2048
_OPEN = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class KernelLog:
    """The log, opened at its end: older messages speak of what was, maybe of another card. A context manager.

    Attributes:
        lost: how many times records were overwritten before they were read.
    """

    def __init__(self, path: Path) -> None:
        """Open the log.

        Raises:
            OSError: it is absent, the container may not open it, or it is neither a device nor a pipe. The error names the path.
        """
        self.lost = 0
        self._fd = os.open(path, _OPEN)
        mode = os.fstat(self._fd).st_mode
        if not stat.S_ISCHR(mode) and not stat.S_ISFIFO(mode):
            os.close(self._fd)
            raise OSError(EINVAL, "it is no character device", str(path))
        with suppress(OSError):  # a pipe has no end
            os.lseek(self._fd, 0, os.SEEK_END)

    def __enter__(self) -> Self:
        """Return the log."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        os.close(self._fd)

    def records(self, most: int) -> list[bytes]:
        """Return the records that are there, `most` of them at most.

        Raises:
            OSError: the kernel refuses to read.
        """
        records: list[bytes] = []
        while len(records) < most:
            try:
                record = os.read(self._fd, _LONGEST_RECORD)
            except BlockingIOError:
                break
            except OSError as error:
                if error.errno not in (EPIPE, EINVAL):  # overwritten, or longer than any record
                    raise
                self.lost += 1
                most -= 1  # so that a log that is always overwritten ends, too
                continue
            if not record:
                break
            records.append(record)
        return records
