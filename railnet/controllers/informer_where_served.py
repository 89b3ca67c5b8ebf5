"""Objects of a kind that not every cluster has: watched where the API server serves the kind and something needs it, and nothing elsewhere.

Elsewhere they are listed and without trouble: the other work does not wait for them.
"""

import threading
from collections.abc import Callable
from typing import Any, TypeVar

from railnet.apiserver.client import Absent, RequestFailed, StreamingApiServer
from railnet.apiserver.request import Collection, JsonObject
from railnet.controllers.informer import Informer

_Kept = TypeVar("_Kept")
_ASK_AGAIN_SECONDS = 600.0  # whether the kind is served: an API server is upgraded under a leader
_LOOK_SECONDS = 0.5


class InformerWhereServed(Informer[_Kept]):
    """An informer that may have nothing to do.

    Attributes:
        absent: whether the API server does not serve the kind.
    """

    def __init__(
        self,
        api: StreamingApiServer,
        about: Collection,
        keep: Callable[[JsonObject], _Kept | None],
        changed: Callable[[_Kept | None, _Kept | None], None],
        listed: Callable[[], None] = lambda: None,
        beside: Informer[Any] | None = None,
    ) -> None:
        """Watch a collection, as `Informer`; with `beside`, from the moment at which that informer has an object."""
        super().__init__(api, about, keep, changed, listed)
        self._beside = beside
        self.absent = False

    def run(self, ended: threading.Event) -> None:
        """As `Informer.run`, as soon as there is something to watch."""
        if self._beside is not None and not self._is_needed(self._beside, ended):
            return
        super().run(ended)

    def _is_needed(self, beside: Informer[Any], ended: threading.Event) -> bool:
        """Wait until the other informer has an object. Return False if the work ends before."""
        while not beside.listed.wait(_LOOK_SECONDS):
            if ended.is_set():
                return False
        while not beside.all():
            self._has_nothing()
            if ended.wait(_LOOK_SECONDS):
                return False
        self.listed.clear()
        return True

    def _wait_out(self, error: RequestFailed, ended: threading.Event) -> None:
        if not isinstance(error, Absent):
            super()._wait_out(error, ended)
            return
        self.absent, self._version = True, ""  # it may have been served until now
        self._has_nothing()
        ended.wait(_ASK_AGAIN_SECONDS)

    def _accepted(self) -> None:
        super()._accepted()
        self.absent = False

    def _has_nothing(self) -> None:
        self.trouble = ""
        self.listed.set()
