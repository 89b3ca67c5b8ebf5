"""The time that the command has, and the client that tries a request again until it is over."""

import random
import time
from collections.abc import Callable

from railnet.apiserver.client import ApiServer, RequestFailed, TooLarge, Transport
from railnet.apiserver.request import JsonObject, Request
from railnet.backoff import Backoff
from railnet.cli.messages import say

_BACKOFF = Backoff(first_seconds=0.5, longest_seconds=30.0)


class Deadline:
    """The end of the command's time. `seconds` is how much there was in all."""

    def __init__(
        self, seconds: float, clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        """Begin the time now."""
        self.seconds, self._clock, self._sleep = seconds, clock, sleep
        self._end = clock() + seconds

    def allows(self, seconds: float) -> bool:
        """Return whether the time is not over in some seconds."""
        return self._clock() + seconds < self._end

    def rest(self, seconds: float) -> bool:
        """Wait for some seconds, and return True; return False at once if the time would be over by then."""
        allowed = self.allows(seconds)
        if allowed:
            self._sleep(seconds)
        return allowed


class RetryingApiServer(ApiServer):
    """Tries a request again, after growing pauses, if the API server is overloaded or does not answer.

    A request that was done although its answer is lost is done twice.
    """

    def __init__(self, transport: Transport, token: Callable[[], str], name: str, deadline: Deadline) -> None:
        """Send through a transport, until the deadline; the rest as `ApiServer`."""
        super().__init__(transport, token, name)
        self._deadline = deadline

    def send(self, request: Request) -> JsonObject:
        """Send a request and return the object of the answer; as `ApiServer.send`."""
        failures = 0
        while True:
            try:
                return super().send(request)
            except TooLarge:
                raise
            except RequestFailed as error:
                if not error.temporary:
                    raise
                failures += 1
                pause = _BACKOFF.pause(failures, random.random())  # noqa: S311 - no secret
                seconds = max(pause, error.retry_after)
                if not self._deadline.allows(seconds):
                    message = f"{error}; tried for {self._deadline.seconds:g} s"
                    raise RequestFailed(message, error.status, error.retry_after) from None
                say(f"{error}; trying again in {seconds:.1f} s")
                self._deadline.rest(seconds)
