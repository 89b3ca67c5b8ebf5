"""One operation at a time for each sandbox, within the daemon; and removal of lock files that no executable holds."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from cni.host import lock
from railnet.kernel.files import make_way


class PerKey:
    """A lock for each key that is in use; nothing is kept of a key whose lock is free."""

    def __init__(self) -> None:
        self._locks: dict[str, asyncio.Lock] = {}
        self._users: dict[str, int] = {}

    def is_held(self, key: str) -> bool:
        """Return whether a task holds or awaits the lock of a key."""
        return key in self._users

    @asynccontextmanager
    async def held(self, key: str) -> AsyncIterator[None]:
        """Hold the lock of a key until the end of the block; tasks get it in order of arrival."""
        await self.take(key)
        try:
            yield
        finally:
            self.give_back(key)

    async def take(self, key: str) -> None:
        """Take the lock of a key, as `held` does; `give_back` ends it."""
        lock = self._locks.setdefault(key, asyncio.Lock())
        self._users[key] = self._users.get(key, 0) + 1
        try:
            await lock.acquire()
        except BaseException:
            self._leave(key)
            raise

    def give_back(self, key: str) -> None:
        """Give back the lock of a key that was taken."""
        self._locks[key].release()
        self._leave(key)

    def _leave(self, key: str) -> None:
        self._users[key] -= 1
        if not self._users[key]:
            del self._users[key], self._locks[key]


def remove_unheld(folder: Path) -> None:
    """Remove the lock files in a folder that no process holds: their executables were killed, and no DEL came.

    An executable that is just about to lock such a file finds it removed, and makes another (`cni.host.lock.acquire`).
    An empty folder that has a lock's name is removed, too, since no request could make the lock.

    Raises:
        OSError: the folder cannot be read; or the first of the files that cannot be locked or removed, after all others.
    """
    failure = None
    for path in folder.iterdir() if folder.is_dir() else ():
        try:
            _remove_unheld(path)
        except FileNotFoundError:  # its request has ended meanwhile
            continue
        except OSError as error:
            failure = failure or error
    if failure is not None:
        raise failure


def _remove_unheld(path: Path) -> None:
    try:
        fd = lock.open_locked(str(path), os.O_RDWR | os.O_NONBLOCK)
    except IsADirectoryError:
        make_way(path)
        return
    if fd is not None:
        lock.remove(str(path), fd)
