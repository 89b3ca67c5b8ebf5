"""A descriptor that a thread opens, on a disk that may hang, and that the event loop closes."""

import os
import threading
from collections.abc import Callable


class ThreadOpenedDescriptor:
    """Opened once and closed once, in any order: a disk may answer after its caller has gone."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._fd: int | None = None
        self._closed = False

    def open(self, opened: Callable[[], int]) -> int:
        """Have `opened` open it, which may block; return it.

        Raises:
            FileNotFoundError: `close` was called meanwhile. OSError: what `opened` raises.
        """
        self._fd = opened()
        if self._closed:
            self.close()
        return self.fd

    @property
    def fd(self) -> int:
        """The descriptor.

        Raises:
            FileNotFoundError: it is not open.
        """
        fd = self._fd
        if fd is None:
            raise FileNotFoundError("it was closed meanwhile, or never opened")
        return fd

    @property
    def is_open(self) -> bool:
        """Whether it is open."""
        return self._fd is not None

    def close(self) -> None:
        """Close it, now or as soon as it is opened. It does not wait for the disk."""
        self._closed = True
        with self._lock:
            fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)
