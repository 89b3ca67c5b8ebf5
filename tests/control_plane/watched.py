"""What a watch of the API server reports to a test, and when."""

import http.client
import json
import threading
import time
from types import TracebackType
from typing import NamedTuple, Self

from tests.control_plane.api import Api, JsonObject


class Reported(NamedTuple):
    """What was reported, at a time of the monotonic clock; `kind` is as ADDED."""

    at: float
    kind: str
    object: JsonObject


class Watched:
    """All that a watch reports inside the `with` block, in a thread. What was there before comes first."""

    def __init__(self, api: Api, path: str) -> None:
        """Watch the list at a path."""
        self.reported: list[Reported] = []
        self._api, self._path = api.another(), path
        self._thread = threading.Thread(target=self._watch)
        self._ended = False

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._ended = True
        self._api.interrupt()
        self._thread.join()
        self._api.close()

    def uids(self) -> set[str]:
        """Return the UIDs of all objects that there were."""
        return {one.object["metadata"]["uid"] for one in tuple(self.reported)}

    def take(self, event: Reported) -> None:
        """Keep an event; what watches very many objects keeps less of each."""
        self.reported.append(event)

    def _watch(self) -> None:
        while not self._ended:
            try:
                self._read()
            except (OSError, ValueError, http.client.HTTPException):  # interrupted, or the API server is started anew
                self._api.close()
                time.sleep(0.1)

    def _read(self) -> None:
        with self._api.request("GET", f"{self._path}?watch=true") as answer:
            for line in answer:
                now, event = time.monotonic(), json.loads(line)
                self.take(Reported(now, event["type"], event["object"]))
