"""The threads in which the daemon does what blocks: of a file, of the kernel, of another program."""

import logging
import os
from concurrent.futures import ThreadPoolExecutor

_log = logging.getLogger(__name__)
_MOST = 32


class Threads(ThreadPoolExecutor):
    """The event loop's threads: as many as asyncio would have, and always at least one.

    If no more can be started (`pids.max`, `ulimit -u`), work waits for those that run. Without this, the standard library raises
    RuntimeError and keeps the work: its caller takes it for failed and undoes it, and a thread does it later all the same.
    """

    def __init__(self) -> None:
        """Start one thread.

        Raises:
            RuntimeError: it cannot be started.
        """
        super().__init__(min(_MOST, (os.cpu_count() or 1) + 4), thread_name_prefix="daemon")
        self._said = False
        self.submit(int).result()

    def _adjust_thread_count(self) -> None:
        before = len(self._threads)
        try:
            super()._adjust_thread_count()
        except RuntimeError as error:
            if not self._threads:
                raise
            if not self._said:
                _log.error(
                    "%s: a limit of processes is reached (`pids.max` of the pod, `ulimit -u`); work waits for the %d threads that run",
                    error,
                    len(self._threads),
                )
            self._said = True
        else:
            self._said = self._said and len(self._threads) == before
