"""Which rails reach each other, for a command that runs for as long as the user looks at it."""

import threading
import time

from railnet.apiserver import rail_reach
from railnet.apiserver.client import ApiServer, RequestFailed
from railnet.fabric.published_reach import PublishedReach

REACH_SECONDS = 60.0  # which rails reach each other changes with the fabric


class WatchedReach:
    """What is published, read again in a thread: where the API server does not answer, its client waits for minutes.

    It is no watch: all users may get this one ConfigMap, and few may list it.
    """

    def __init__(self, api: ApiServer) -> None:
        """Read it for the first time.

        Raises:
            RequestFailed: the API server does not answer.
        """
        self._api, self._asked = api, time.monotonic()
        self._known, self._shown = rail_reach.read(api), True
        self._thread: threading.Thread | None = None

    @property
    def has_changed(self) -> bool:
        """Return whether something else is known than `latest` has returned last."""
        return not self._shown

    def latest(self) -> PublishedReach:
        """Return what is known, and begin to read it again if it is older than a minute. It blocks for nothing."""
        is_read = self._thread is not None and self._thread.is_alive()
        if not is_read and time.monotonic() - self._asked > REACH_SECONDS:
            self._asked = time.monotonic()
            self._thread = threading.Thread(target=self._read, daemon=True)
            self._thread.start()
        self._shown = (
            True  # before the value is taken: one that comes between the two is shown twice, and never left out
        )
        return self._known

    def _read(self) -> None:
        try:
            reach = rail_reach.read(self._api)
        except RequestFailed:  # what was known stays; `LiveObjects.trouble` says that no answer comes
            return
        if reach != self._known:
            self._known, self._shown = reach, False
