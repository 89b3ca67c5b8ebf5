"""One operation at a time for each sandbox, within the daemon."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


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
