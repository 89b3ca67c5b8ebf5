"""The objects of one kind, as the API server last reported them: listed once, then watched.

Each object is reduced at once to what the controllers read of it: ten thousand training pods of 5 KB take 21 MB.
"""

import logging
import random
import threading
import time
from collections.abc import Callable
from contextlib import closing
from typing import Generic, NamedTuple, TypeVar

from railnet.apiserver.client import Expired, RequestFailed, StreamingApiServer, TooLarge
from railnet.apiserver.object_watch import Change, NotAsDocumented, WatchEventType, changes, pages
from railnet.apiserver.request import Collection, JsonObject
from railnet.backoff import Backoff

_log = logging.getLogger(__name__)
# The API server ends a watch after the time that is asked for. Different times keep many watches from beginning at the same moment.
_WATCH_SECONDS = (300, 600)
# A watch that ends earlier without a change was not ended by an API server that works (client-go: "very short watch").
_SHORTEST_WATCH_SECONDS = 1.0
BACKOFF = Backoff(first_seconds=0.5, longest_seconds=30.0)

_Kept = TypeVar("_Kept")


class Name(NamedTuple):
    """The name of an object; `namespace` is empty for an object of the whole cluster."""

    namespace: str
    name: str


class Informer(Generic[_Kept]):
    """The objects of one kind that `keep` keeps; `run` keeps them up to date.

    Attributes:
        listed: set when all objects are known for the first time.
        trouble: why the objects are not up to date; empty if they are.
    """

    def __init__(
        self,
        api: StreamingApiServer,
        about: Collection,
        keep: Callable[[JsonObject], _Kept | None],
        changed: Callable[[_Kept | None, _Kept | None], None],
        listed: Callable[[], None] = lambda: None,
    ) -> None:
        """Watch a collection.

        Args:
            api: the API server.
            about: the objects.
            keep: reduces an object to what is read of it; None if nothing is. An error in it is the object's fault: it is not kept.
            changed: called with an object before and after a change, None where it was or is not; by the thread of `run`. An error in
                it is logged, and does not end the watch.
            listed: called by that thread when all objects are known for the first time.
        """
        self._api, self._about, self._keep, self._changed = api, about, keep, changed
        self._objects: dict[Name, _Kept] = {}
        self._lock = threading.Lock()
        self._version = ""  # the `resourceVersion` that the next watch begins after; empty to list first
        self._failures = 0  # since the watch last worked
        self._on_listed = listed
        self.listed = threading.Event()
        self.trouble = f"{about} are not listed yet"

    def get(self, namespace: str, name: str) -> _Kept | None:
        """Return an object; None if there is none, or it is not kept."""
        with self._lock:
            return self._objects.get(Name(namespace, name))

    def all(self) -> list[_Kept]:
        """Return all kept objects."""
        with self._lock:
            return list(self._objects.values())

    def run(self, ended: threading.Event) -> None:
        """List and watch until `ended` is set. The API server's failures are waited out: readiness says why nothing is new."""
        while not ended.is_set():
            try:
                if not self._version:
                    self._list()
                self._watch(ended)
            except RequestFailed as error:
                self._wait_out(error, ended)

    def _wait_out(self, error: RequestFailed, ended: threading.Event) -> None:
        if isinstance(error, Expired | NotAsDocumented | TooLarge) or not error.temporary:
            self._version = ""  # the same watch would fail in the same way
        self._failures += 1
        pause = max(error.retry_after, BACKOFF.pause(self._failures, random.random()))  # noqa: S311 - no secret
        self.trouble = f"{self._about} are not up to date: {error}"
        _log.warning("%s; trying again in %.1f s", self.trouble, pause)
        ended.wait(pause)

    def _accepted(self) -> None:
        self.trouble = ""

    def _list(self) -> None:
        version, objects = "", {}
        for page in pages(self._api, self._about):
            version = page.version
            for json_object in page.found:
                kept = self._kept(json_object)
                if kept is not None:
                    objects[_name(json_object)] = kept
        with self._lock:
            before, self._objects = self._objects, objects
        for name in before.keys() | objects.keys():
            old, new = before.get(name), objects.get(name)
            self._report(old, new)
        if not self.listed.is_set():
            self.listed.set()
            self._on_listed()
        self._version = version

    def _watch(self, ended: threading.Event) -> None:
        """Apply changes until the watch ends; each change is the beginning of the next watch."""
        seconds = random.randint(*_WATCH_SECONDS)  # noqa: S311 - no secret
        began, received = time.monotonic(), False
        with closing(changes(self._api, self._about, self._version, seconds, self._accepted)) as watch:
            for change in watch:
                if ended.is_set():
                    return
                if change.kind is not WatchEventType.BOOKMARK:
                    self._apply(change)
                self._version, self._failures, received = change.version, 0, True
        if not received and time.monotonic() - began < _SHORTEST_WATCH_SECONDS:
            raise RequestFailed(f"cannot watch {self._about}: the API server ended the watch at once")
        self._failures = 0

    def _apply(self, change: Change) -> None:
        name = _name(change.found)
        new = None if change.kind is WatchEventType.DELETED else self._kept(change.found)
        with self._lock:
            old = self._objects.pop(name, None)
            if new is not None:
                self._objects[name] = new
        self._report(old, new)

    def _report(self, old: _Kept | None, new: _Kept | None) -> None:
        if old == new:
            return
        try:
            self._changed(old, new)
        except Exception:  # noqa: BLE001 - one object must not end the watch of all others
            _log.exception("a change of %s was not taken in; report this error", self._about)

    def _kept(self, json_object: JsonObject) -> _Kept | None:
        try:
            return self._keep(json_object)
        except Exception as error:  # noqa: BLE001 - one object must not end the watch of all others
            _log.warning("%s %s cannot be read, and is left out: %r", self._about, _name(json_object), error)
            return None


def _name(json_object: JsonObject) -> Name:
    metadata = json_object.get("metadata")
    if not isinstance(metadata, dict):
        return Name("", "")
    return Name(str(metadata.get("namespace") or ""), str(metadata.get("name") or ""))
