"""Whether a file of kubelet has the content that was read last: kubelet writes a new file and renames it."""

import os
import time
from typing import NamedTuple, Self

# The kernel takes a file's time from its coarse clock, with ticks of 1 to 10 ms (CONFIG_HZ), so two writes in one tick can have the same
# time. A file that is read sooner than this after it was written is therefore not remembered.
_SETTLED_NS = 100_000_000


class FileVersion(NamedTuple):
    """The identity of one content of a file."""

    inode: int
    mtime_ns: int
    size: int

    @classmethod
    def of(cls, status: os.stat_result) -> Self:
        """Return the version of a file by its status."""
        return cls(status.st_ino, status.st_mtime_ns, status.st_size)

    @property
    def settled(self) -> bool:
        """Return whether a later content of the file surely has another version."""
        return time.time_ns() - self.mtime_ns > _SETTLED_NS
