"""Training pods created as dry runs, while the admission helper is changed."""

import http.client
import threading
from types import TracebackType
from typing import Any, Self

from tests.cluster.api_requests import Answer, ApiRequests
from tests.cluster.pods import RESOURCE


class AdmissionLoad:
    """As many at once as pods are given, each again and again, until the end of the block.

    Attributes:
        patched: how many answers had a pod with its request for VFs.
        others: every other answer.
    """

    def __init__(self, *pods: dict[str, Any]) -> None:
        """Create pods like these, each in a thread of its own."""
        self._ending = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(pod,)) for pod in pods]
        self._error: BaseException | None = None
        self._lock = threading.Lock()
        self.patched = 0
        self.others: list[Answer] = []

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._ending.set()
        for thread in self._threads:
            thread.join()
        if self._error is not None and error is None:
            raise self._error

    def _run(self, pod: dict[str, Any]) -> None:
        try:
            with ApiRequests() as api:
                while not self._ending.is_set():
                    self._note(api.create(pod, dry_run=True))
        except BaseException as error:  # noqa: BLE001 - raised again by the thread that waits
            self._error = error

    def _note(self, answer: Answer) -> None:
        good = answer.status == http.client.CREATED and is_patched(answer.document)
        with self._lock:
            self.patched += good
            if not good:
                self.others.append(answer)


def is_patched(pod: dict[str, Any]) -> bool:
    """Tell whether a container of a pod asks for VFs."""
    return any(RESOURCE in one["resources"].get("limits", {}) for one in pod["spec"]["containers"])
