"""Objects that a command watches for as long as it waits: listed once, then kept up to date."""

import logging
import threading
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self

from railnet.apiserver.client import StreamingApiServer
from railnet.apiserver.request import Collection, JsonObject
from railnet.controllers.informer import Informer

Keep = Callable[[JsonObject], Any]


class LiveObjects:
    """Some collections, each by a name; a context manager, inside of which they are watched."""

    def __init__(self, api: StreamingApiServer, collections: Mapping[str, tuple[Collection, Keep]]) -> None:
        """Watch collections; `Keep` reduces an object to what is shown of it, None if nothing is."""
        self._changed, self._ended = threading.Event(), threading.Event()
        self._informers = {
            name: Informer[Any](api, about, keep, self._on_change, self._changed.set)
            for name, (about, keep) in collections.items()
        }
        self._first = {informer.trouble for informer in self._informers.values()}  # that nothing is listed yet

    def __enter__(self) -> Self:
        logging.getLogger("railnet.controllers.informer").setLevel(logging.CRITICAL)  # `trouble` is shown in its place
        for informer in self._informers.values():
            threading.Thread(target=informer.run, args=(self._ended,), daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._ended.set()

    @property
    def listed(self) -> bool:
        """Return whether all objects are known."""
        return all(informer.listed.is_set() for informer in self._informers.values())

    @property
    def trouble(self) -> str:
        """Return why the objects are not up to date; empty if they are, or if no request has failed yet."""
        return next(
            (informer.trouble for informer in self._informers.values() if informer.trouble not in ("", *self._first)),
            "",
        )

    def of(self, name: str) -> list[Any]:
        """Return the objects of a collection."""
        return self._informers[name].all()

    def wait(self, seconds: float) -> bool:
        """Wait until something has changed since the last call, for at most some seconds; return whether it has."""
        changed = self._changed.wait(seconds)
        self._changed.clear()
        return changed

    def rest(self, seconds: float) -> None:
        """Wait for some seconds, even if something changes."""
        self._ended.wait(seconds)

    def _on_change(self, _before: Any, _after: Any) -> None:
        self._changed.set()
