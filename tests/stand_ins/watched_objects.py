"""All objects of some kinds in an API server, kept up to date by list and watch of raw JSON. Independent of Railnet's client."""

import http.client
import json
import ssl
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

_WATCH_SECONDS = 300  # the API server ends a watch then; half as many later than that, the connection counts as dead
_REQUEST_SECONDS = 30.0
_PAUSE_SECONDS = 0.5
_Object = Mapping[str, Any]


class RequestRefused(RuntimeError):
    """The API server answered with another status than 200, or ended a watch with an error."""


class Connections:
    """Makes connections to the API server of a kubeconfig, which is JSON here, with its user's token."""

    def __init__(self, kubeconfig: Path) -> None:
        document = json.loads(kubeconfig.read_text())
        cluster = document["clusters"][0]["cluster"]
        self._server = cluster["server"].removeprefix("https://")
        self._context = ssl.create_default_context(cafile=cluster["certificate-authority"])
        self._headers = {"Authorization": f"Bearer {document['users'][0]['user']['token']}"}

    def get(self, path: str) -> Any:
        """Return the object at a path.

        Raises:
            OSError: there is no answer.
            RequestRefused: the answer is not the object.
        """
        (answer,) = self.lines(path, _REQUEST_SECONDS)
        return answer

    def lines(self, path: str, seconds: float) -> Iterator[Any]:
        """Yield the JSON values of an answer that has one on each line; `seconds` may pass without one."""
        with closing(http.client.HTTPSConnection(self._server, timeout=seconds, context=self._context)) as connection:
            connection.request("GET", path, headers=self._headers)
            response = connection.getresponse()
            if response.status != http.client.OK:
                raise RequestRefused(f"GET {path}: HTTP {response.status}: {response.read()[:400]!r}")
            for line in response:
                yield json.loads(line)


class WatchedObjects:
    """Objects of several kinds, each watched by a thread.

    Attributes:
        version: changes with each change of an object.
    """

    def __init__(
        self, connections: Connections, paths: Sequence[Callable[[], str]], watch_seconds: int = _WATCH_SECONDS
    ) -> None:
        """Watch lists. Each path is found out when it is listed, as it may depend on the versions that the API server has."""
        self._connections, self._paths, self._watch_seconds = connections, paths, watch_seconds
        self._objects: list[dict[tuple[str, str], _Object] | None] = [None] * len(paths)
        self._lock = threading.Lock()
        self._ending = threading.Event()
        self.version = 0

    def start(self) -> None:
        for index in range(len(self._paths)):
            threading.Thread(target=self._run, args=(index,), daemon=True).start()

    def stop(self) -> None:
        """End each watch when its connection ends; the objects stay."""
        self._ending.set()

    def lists(self) -> list[list[_Object]] | None:
        """Return the objects of each path; None until each was listed once."""
        with self._lock:
            found = [None if kind is None else list(kind.values()) for kind in self._objects]
        return None if any(kind is None for kind in found) else [kind for kind in found if kind is not None]

    def _run(self, index: int) -> None:
        """List and watch; what is known stays known while the API server does not answer."""
        while not self._ending.is_set():
            try:
                self._list_and_watch(index)
            except (OSError, http.client.HTTPException, ValueError, RequestRefused) as error:
                if not self._ending.is_set():
                    sys.stderr.write(f"{type(error).__name__}: {error}\n")
                self._ending.wait(_PAUSE_SECONDS)

    def _list_and_watch(self, index: int) -> None:
        path = self._paths[index]()
        listed = self._connections.get(path)
        self._replace(index, {_key(one): one for one in listed["items"]})
        version = listed["metadata"]["resourceVersion"]
        while not self._ending.is_set():  # a watch that the API server ends in time goes on where it ended
            watch = (
                f"{path}?watch=1&allowWatchBookmarks=1&timeoutSeconds={self._watch_seconds}&resourceVersion={version}"
            )
            for event in self._connections.lines(watch, self._watch_seconds * 1.5):
                if event["type"] == "ERROR":  # 410: the version is too old
                    raise RequestRefused(f"watch of {path}: {event['object'].get('message', '')}")
                version = event["object"]["metadata"]["resourceVersion"]
                self._apply(index, event["type"], event["object"])

    def _replace(self, index: int, objects: dict[tuple[str, str], _Object]) -> None:
        with self._lock:
            self._objects[index] = objects
            self.version += 1

    def _apply(self, index: int, kind: str, changed: _Object) -> None:
        with self._lock:
            objects = self._objects[index]
            if objects is None or kind == "BOOKMARK":
                return
            if kind == "DELETED":
                objects.pop(_key(changed), None)
            else:
                objects[_key(changed)] = changed
            self.version += 1


def _key(one: _Object) -> tuple[str, str]:
    return one["metadata"].get("namespace", ""), one["metadata"]["name"]
