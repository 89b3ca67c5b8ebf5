"""The object that a gang's pods began with, and the pods that it will make: read once for each owner, and again before an eviction.

`railnet.controllers.owners` has the kinds. Here the objects on the way are read, too: the highest one with templates says how many pods a gang
will have, and what those ask for that do not exist yet; and all of them say what an eviction of the pods would do to them.
"""

import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from railnet.apiserver.client import ApiServer, RequestFailed
from railnet.apiserver.request import JsonObject
from railnet.controllers.owners import DEEPEST, SCHEDULES, read_owner
from railnet.controllers.work_queue import WorkQueue
from railnet.gangs.planning_result import Asked, Root
from railnet.gangs.pod_templates import PodTemplate, pod_templates
from railnet.gangs.shared_pod_parts import SMALL_BYTES, NamespaceShares
from railnet.gangs.staged_creation import creation_stages
from railnet.jobs.eviction_tolerance import tolerance
from railnet.objects.owner_reference import OwnerReference, controller

_REMEMBERED = 10_000
# A kind that the API server cannot read now, such as one whose conversion webhook is down, must not hold a gang for ever.
_MOST_FAILURES = 6


class _Reading(NamedTuple):
    """What was read, when that began, and how many bytes its templates take, roughly."""

    root: Root
    at: float
    size: int = 0


class GangRoots:
    """Asks the API server.

    Attributes:
        queue: the owners that are to be asked for; any number of workers.
    """

    def __init__(
        self, api: ApiServer, answered: Callable[[Asked], object], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Call `answered` after each answer that is news or that `find` did not have, by a worker's thread. `clock` returns seconds."""
        self._api, self._answered, self._clock = api, answered, clock
        self._lock = threading.Lock()
        self._known: dict[Asked, _Reading] = {}
        self._stale: set[Asked] = set()
        self._awaited: set[Asked] = set()
        self._failures: dict[Asked, int] = {}
        self._shares = NamespaceShares()  # of what templates take
        self.queue: WorkQueue[Asked] = WorkQueue()

    def find(self, asked: Asked, read_after: float = float("-inf")) -> Root | None:
        """Return what is known, if it was read after a moment on the clock; None if it is asked for from now on."""
        with self._lock:
            reading = self._known.get(asked)
            if reading is not None and reading.at > read_after:
                return reading.root
            if asked not in self._awaited:
                self._awaited.add(asked)
                self._stale.add(asked)
        self.queue.add(asked)
        return None

    def ask_again(self, asked: Asked) -> None:
        """Ask once more; until the answer comes, what was known counts."""
        with self._lock:
            self._stale.add(asked)
        self.queue.add(asked)

    def reconcile(self, asked: Asked) -> None:
        """Ask for an owner and those above it.

        Raises:
            RequestFailed: the API server did not answer; it is to be asked again.
        """
        with self._lock:
            if asked in self._known and asked not in self._stale:  # asked for twice
                return
            self._stale.discard(asked)
        began = self._clock()
        try:
            root = self._ask(asked)
        except RequestFailed:
            failures = self._failures[asked] = self._failures.get(asked, 0) + 1
            if failures < _MOST_FAILURES:
                with self._lock:
                    self._stale.add(asked)
                raise
            root = Root(asked.owner, (), tolerance([(asked.owner, None)]))
        self._failures.pop(asked, None)
        if self._takes_in(asked, _Reading(root, began)):
            self._answered(asked)

    def _takes_in(self, asked: Asked, reading: _Reading) -> bool:
        """Take in what was read; return whether it is news or was waited for."""
        with self._lock:
            before = self._forget(asked)
            if len(self._known) >= _REMEMBERED:
                self._forget(next(iter(self._known)))  # those that were not read for the longest time come first
            self._known[asked] = reading = self._within_share(asked.namespace, reading)
            is_news = before is None or before.root != reading.root or asked in self._awaited
            self._awaited.discard(asked)
        return is_news

    def _forget(self, asked: Asked) -> _Reading | None:
        before = self._known.pop(asked, None)
        if before is not None and before.size:
            self._shares.give_back(asked.namespace, before.size)
        return before

    def _within_share(self, namespace: str, reading: _Reading) -> _Reading:
        """Return what is kept of a reading: only how many pods there are, if its templates are more than its namespace may have.

        Those of the same namespace that were not read for the longest time give way: their jobs may have ended long ago.
        """
        size = len(repr(reading.root.templates))
        if size <= SMALL_BYTES:
            return reading
        if not self._shares.permits(namespace, size):
            self._make_room(namespace, size)
        if not self._shares.permits(namespace, size):
            return _without_templates(reading)
        self._shares.take(namespace, size)
        return reading._replace(size=size)

    def _make_room(self, namespace: str, size: int) -> None:
        for asked, reading in self._known.items():
            if asked.namespace == namespace and reading.size:
                self._shares.give_back(namespace, reading.size)
                self._known[asked] = _without_templates(reading)
                if self._shares.permits(namespace, size):
                    return

    def _ask(self, asked: Asked) -> Root:
        owner: OwnerReference = asked.owner
        templates: tuple[PodTemplate, ...] = ()
        stages = ""
        chain: list[tuple[OwnerReference, JsonObject | None]] = []
        for _ in range(DEEPEST):
            owner_object = read_owner(self._api, asked.namespace, owner)
            chain.append((owner, owner_object))
            if owner_object is None:
                break
            templates = tuple(pod_templates(owner_object)) or templates
            stages = stages or creation_stages(owner, owner_object)
            above = controller(owner_object)
            if above is None or above.kind in SCHEDULES:
                break
            owner = above
        return Root(owner, templates, tolerance(chain), stages)


def _without_templates(reading: _Reading) -> _Reading:
    """Return a reading that says of the templates only how many pods they make."""
    root = reading.root
    pods = PodTemplate("", sum(template.count for template in root.templates), "", None)
    return reading._replace(root=root._replace(templates=(pods,)), size=0)
