"""One operation at a time for each sandbox, within the daemon; and the files of the executables' locks that nobody holds."""

import asyncio
import fcntl
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from cni.host import lock


class PerKey:
    """A lock for each key in use; nothing is kept of a key that nobody holds or waits for."""

    def __init__(self) -> None:
        self._locks: dict[str, asyncio.Lock] = {}
        self._users: dict[str, int] = {}

    def is_held(self, key: str) -> bool:
        """Tell whether somebody holds or awaits the lock of a key."""
        return key in self._users

    @asynccontextmanager
    async def held(self, key: str) -> AsyncIterator[None]:
        """Hold the lock of a key; waits in order of arrival."""
        lock = self._locks.setdefault(key, asyncio.Lock())
        self._users[key] = self._users.get(key, 0) + 1
        try:
            async with lock:
                yield
        finally:
            self._users[key] -= 1
            if not self._users[key]:
                del self._users[key], self._locks[key]


def remove_unheld(folder: Path) -> None:
    """Remove the locks in a folder that no process holds: their executables were killed, and no DEL came.

    Who is just about to take one finds that it is gone, and makes another (`cni.host.lock.acquire`).
    """
    for path in folder.iterdir() if folder.is_dir() else ():
        try:
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:  # its request has ended meanwhile
            continue
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            continue
        if lock.is_at(fd, str(path)):
            lock.remove(str(path), fd)
        else:
            os.close(fd)
