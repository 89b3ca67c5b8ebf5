"""Which daemon owned the node's VFs during an operation, by the kernel's list of lock holders."""

import contextlib
import os
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.cluster.railnet_on_node import STATE

_LOCK = STATE / "daemon.lock"
_LOOK_SECONDS = 0.005


class Owners:
    """Looks all the time, until the end of the block.

    Attributes:
        processes: that were seen to own the VFs, in their order.
        most: how many did so at once; a lock file that was deleted and made anew counts as the same.
    """

    def __init__(self) -> None:
        self.processes: list[int] = []
        self.most = 0
        self._files: set[str] = set()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._ending.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ending.is_set():
            self._look()
            time.sleep(_LOOK_SECONDS)

    def _look(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            status = _LOCK.stat()
            major, minor = os.major(status.st_dev), os.minor(status.st_dev)
            self._files.add(f"{major:02x}:{minor:02x}:{status.st_ino}")
        # proc_locks(5): number, FLOCK, ADVISORY, WRITE, process, file, first and last byte
        lines = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
        held = [int(fields[4]) for fields in lines if fields[1] == "FLOCK" and fields[5] in self._files]
        self.most = max(self.most, len(held))
        self.processes += [process for process in held if process not in self.processes]
