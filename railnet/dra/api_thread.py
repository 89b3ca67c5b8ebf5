"""Requests to the API server by one thread of their own, each with a time limit.

An API server that never ends its answer costs these requests alone: no thread of the event loop waits for it.
"""

from collections.abc import Callable
from typing import TypeVar

from railnet.apiserver.client import ApiServer, RequestFailed
from railnet.apiserver.object_watch import pages
from railnet.apiserver.request import Collection, JsonObject, Request
from railnet.kernel.threads.bounded_threads import BoundedThreads, ThreadCall

_SECONDS = 30.0  # the transport gives up after ten seconds of silence; a list has several pages
_Answer = TypeVar("_Answer")


class ApiThread:
    """Sends one request after the other. While one hangs, no other is sent."""

    def __init__(self, api: ApiServer, seconds: float = _SECONDS) -> None:
        """Send by `api`; `seconds` is the time for one request, or for one list."""
        self._api, self._seconds = api, seconds
        self._threads = BoundedThreads(1)
        self._hung: ThreadCall | None = None

    async def send(self, request: Request) -> JsonObject:
        """Send a request and return the answer.

        Raises:
            RequestFailed, OSError, ValueError: as `ApiServer.send`; RequestFailed also if no answer comes in time.
        """
        return await self._do(str(request), lambda: self._api.send(request))

    async def all_of(self, about: Collection) -> list[JsonObject]:
        """Return all objects of a collection.

        Raises:
            RequestFailed, OSError, ValueError: as `send`.
        """
        return await self._do(
            f"list {about}", lambda: [item for page in pages(self._api, about) for item in page.found]
        )

    async def _do(self, what: str, work: Callable[[], _Answer]) -> _Answer:
        if self._hung is not None and not self._hung.future.done():
            raise RequestFailed(f"cannot {what}: the answer to an earlier request has not ended yet")
        call = self._threads.begin("the requests for ResourceSlices", work)
        try:
            ended = await call.ends_within(self._seconds)
        finally:
            call.abandoned = True
        if not ended:
            self._hung = call
            raise RequestFailed(f"cannot {what}: no whole answer within {self._seconds:g} s")
        answer: _Answer = call.future.result()
        return answer
