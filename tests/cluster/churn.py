"""Pods that come and go while something else is done to the node, and what became of each."""

import threading
from types import TracebackType
from typing import Any, NamedTuple, Self

from tests.cluster.node import ClusterNode
from tests.cluster.process import until_found

_SECONDS = 240.0  # the scheduler may look only once a minute at a pod that it held back


class Outcome(NamedTuple):
    """What became of a pod: the interfaces that its container saw, or the reason of its failure."""

    interfaces: tuple[str, ...]
    failure: str | None


class Churn:
    """One pod after another, all alike, until the end of the block; the last one is waited for, unless no node has VFs for it.

    Attributes:
        outcomes: of the pods, complete after the block.
    """

    def __init__(self, node: ClusterNode, vfs: int) -> None:
        """Bring pods that ask for so many VFs."""
        self._node, self._vfs = node, vfs
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._error: BaseException | None = None
        self.outcomes: list[Outcome] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._ending.set()
        self._thread.join()
        if self._error is not None and error is None:
            raise self._error

    def _run(self) -> None:
        try:
            while not self._ending.is_set():
                name = self._node.bring("churn", self._vfs)
                self._wait(name)
                self._node.delete(name)
        except BaseException as error:  # noqa: BLE001 - raised again by the thread that waits
            self._error = error

    def _wait(self, name: str) -> None:
        """Wait until a pod runs or has failed, and note it; one that the scheduler holds back at the end is let go."""

        def look() -> dict[str, Any]:
            status = self._node.status(name)
            return status if self._is_over(status) else {}

        status = until_found(look, _SECONDS, f"{name} to run or to fail")
        if status["phase"] == "Failed":
            self.outcomes.append(Outcome((), status["reason"]))
        elif _is_settled(status):
            self.outcomes.append(Outcome(tuple(sorted(self._node.addresses(name))), None))

    def _is_over(self, status: dict[str, Any]) -> bool:
        return _is_settled(status) or (self._ending.is_set() and _is_held_back(status))


def _is_settled(status: dict[str, Any]) -> bool:
    containers = status.get("containerStatuses")
    running = isinstance(containers, list) and all(one["ready"] for one in containers)
    return running or status["phase"] == "Failed"


def _is_held_back(status: dict[str, Any]) -> bool:
    return any(one["type"] == "PodScheduled" and one["status"] == "False" for one in status.get("conditions", []))
