"""The daemon's work beside the requests: each task goes on until the daemon's end, whatever the node's files and kernel answer.

Only the daemon's own configuration ends it (`Misconfigured`). A task that fails for another reason begins anew, and readiness says why.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from errno import EPERM
from typing import TypeVar

from railnet.errors import Misconfigured, RailnetError

_log = logging.getLogger(__name__)
_Result = TypeVar("_Result")
_AGAIN_SECONDS = 2.0
# A task that goes on for longer than this has no trouble any more: the slowest of them, the resync, does its work every ten seconds.
_OVER_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class TaskPauses:
    """Seconds: until a failed task begins anew, and how long its failure is a reason."""

    again: float = _AGAIN_SECONDS
    over: float = _OVER_SECONDS


class BackgroundTasks:
    """The tasks of one daemon, and why some of them failed a short time ago."""

    def __init__(self, pauses: TaskPauses | None = None) -> None:
        self._pauses = pauses or TaskPauses()
        self._failures: dict[str, tuple[str, float]] = {}  # the reason, and until when it is one

    def reasons(self) -> list[str]:
        """Return why tasks failed, for /readyz; empty if all have gone on for some time."""
        now = asyncio.get_running_loop().time()
        return [why for why, until in self._failures.values() if now < until]

    async def keep(self, title: str, work: Callable[[], Awaitable[None]]) -> None:
        """Do work that lasts until it returns or is cancelled; after a failure it begins anew. `title` names it in a reason.

        Raises:
            Misconfigured: as the work; a new try would find the same configuration.
        """
        await self._until_done(title, work, lambda error: isinstance(error, Misconfigured))

    async def start(self, title: str, work: Callable[[], Awaitable[_Result]]) -> _Result:
        """Do work that must succeed before the daemon serves, again and again until it does; return its result.

        Raises:
            Misconfigured: as the work. PermissionError: the daemon lacks a privilege, which its deployment must give.
        """
        return await self._until_done(title, work, _ends_a_start)

    async def _until_done(
        self, title: str, work: Callable[[], Awaitable[_Result]], is_final: Callable[[Exception], bool]
    ) -> _Result:
        while True:
            try:
                return await work()
            except Exception as error:
                if is_final(error):
                    raise
                self._report(title, error)
            await asyncio.sleep(self._pauses.again)

    def _report(self, title: str, error: Exception) -> None:
        expected = isinstance(error, OSError | RailnetError)
        why = f"{title}: {error if expected else repr(error)}; it is tried again"
        _log.error("%s", why, exc_info=not expected)
        self._failures[title] = why, asyncio.get_running_loop().time() + self._pauses.over


def _ends_a_start(error: Exception) -> bool:
    # A file gives EPERM, too (an immutable one), and then the error names the file.
    unprivileged = isinstance(error, PermissionError) and error.errno == EPERM and error.filename is None
    return unprivileged or isinstance(error, Misconfigured)
