"""Reads of files on the host's disks, for an event loop: a disk that hangs costs the request that needs the file, and not the loop.

`railnet.kernel.threads.bounded_reads` is the same for hardware's files. Files on a tmpfs (/run) and the kernel's own are read directly.
"""

import asyncio
from collections.abc import Callable
from errno import ETIMEDOUT
from typing import TypeVar

from railnet.kernel.threads.bounded_threads import BoundedThreads, ThreadCall

_Read = TypeVar("_Read")
_SECONDS = (
    2.0  # less than the three after which the supervisor ends a daemon; a busy disk takes some tens of milliseconds
)
_SECOND_LOOK_SECONDS = 0.2  # after the daemon itself was stopped for longer than the limit


class FileReads:
    """Reads in one thread for each file, so that what one file's reads remember needs no lock. Used on one event loop."""

    def __init__(self, seconds: float = _SECONDS) -> None:
        self._seconds = seconds
        self._threads = BoundedThreads(1)
        self._hung: dict[str, ThreadCall] = {}

    async def read(self, file: str, work: Callable[[], _Read]) -> _Read:
        """Do the work, which reads a file. `file` names it, in the error too; it may be a folder of many files.

        Raises:
            OSError: ETIMEDOUT, the file is not read in time, or an earlier read of it has not returned; else what `work` raises.
        """
        hung = self._hung.get(file)
        if hung is not None and not hung.future.done():
            raise self._does_not_answer(file)
        self._hung.pop(file, None)
        call = self._threads.begin(file, work)
        try:
            ended = await call.ends_within(self._seconds) or await call.ends_within(_SECOND_LOOK_SECONDS)
        finally:
            call.abandoned = True
        if not ended:
            if call.started:
                self._hung[file] = call
            raise self._does_not_answer(file)
        contents: _Read = call.future.result()
        return contents

    async def answered(self, file: str) -> None:
        """Wait until work with this file that was not done in time has returned, which may be never. Its outcome is dropped."""
        hung = self._hung.get(file)
        if hung is not None:
            await asyncio.wait({hung.future})

    def _does_not_answer(self, file: str) -> OSError:
        why = f"not read within {self._seconds:g} s: does its disk answer? look in dmesg. It is read again as soon as it does"
        return OSError(ETIMEDOUT, why, file)


_reads = FileReads()


async def read_in_time(file: str, work: Callable[[], _Read]) -> _Read:
    """Do the same as `FileReads.read`, with the threads that all parts of this process share."""
    return await _reads.read(file, work)


async def answered(file: str) -> None:
    """Do the same as `FileReads.answered`, for the work of `read_in_time`."""
    await _reads.answered(file)
