"""What the stand-ins of this tier have in common: a thread that looks at lists of the API server whenever one of them has changed.

A stand-in speaks to the API server alone, so that the real program can take its place.
"""

import http.client
import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from tests.cluster.process import wait_until
from tests.genericapiserver.api import Api, JsonObject
from tests.genericapiserver.server import PORT, ApiServer
from tests.stand_ins.watched_objects import Connections, WatchedObjects

_SECONDS = 60.0
_WATCH_SECONDS = 5  # the API server waits for watches when it ends, and nothing else ends them
_LOOK_SECONDS = 0.01
_AGAIN_SECONDS = 0.3


class StandIn:
    """Works inside the `with` block, and while the API server answers."""

    def __init__(self, server: ApiServer, paths: Sequence[str]) -> None:
        """Watch the lists at some paths."""
        self.api = Api(PORT, server.api.authority)
        self._objects = WatchedObjects(
            Connections(server.kubeconfig), [lambda path=path: path for path in paths], _WATCH_SECONDS
        )
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=type(self).__name__)

    def look(self, *lists: list[JsonObject]) -> bool:
        """Do what the lists call for; return whether to look again although nothing changes."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        self._objects.start()
        wait_until(lambda: self._objects.lists() is not None, _SECONDS, "the first lists")
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._ended.set()
        self._objects.stop()
        self._thread.join()
        self.api.close()

    def _run(self) -> None:
        seen = -1
        while not self._ended.is_set():
            version, lists = self._objects.version, self._objects.lists()
            if version == seen or lists is None:
                self._ended.wait(_LOOK_SECONDS)
                continue
            seen = version
            try:
                again = self.look(*(list(map(dict, one)) for one in lists))
            except (OSError, http.client.HTTPException):  # the API server is away
                again = True
            if again:
                seen = -1
                self._ended.wait(_AGAIN_SECONDS)
