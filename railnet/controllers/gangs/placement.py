"""The controller that places gangs: it collects changes, runs one pass over all gangs, and sends what the pass decided.

One thread decides, for all gangs at once; others patch and evict pods, and read the objects that make pods. All state is in the pods
(docs/decisions/0056).
"""

import logging
import random
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from typing import Any

from railnet.apiserver.client import StreamingApiServer
from railnet.apiserver.request import Collection, JsonObject
from railnet.controllers.events import JobEvents
from railnet.controllers.gangs.events import GangEvents
from railnet.controllers.gangs.pod_groups import PodGroupWrites
from railnet.controllers.gangs.pod_writes import Address, PodWrites
from railnet.controllers.gangs.root_objects import GangRoots
from railnet.controllers.informer import Informer
from railnet.controllers.informer_where_served import InformerWhereServed
from railnet.controllers.work_queue import WorkQueue
from railnet.gangs.device_claims import DeviceClaim, device_claim
from railnet.gangs.placement.node import Node, node
from railnet.gangs.planning import GangPlanning
from railnet.gangs.planning_result import Asked, Decision, Evict, WriteOutcome
from railnet.gangs.pod import GangPod, GangPods
from railnet.gangs.pod_groups import GroupOutcome
from railnet.gangs.slice_devices import PoolSlice, pool_slice
from railnet.jobs.gang.recogniser import GATE, OFF
from railnet.jobs.reported_pod import ReportedPod
from railnet.kubelet.dra_driver_name import DRIVER

_log = logging.getLogger(__name__)
_ALL = "all gangs"  # the only key: one plan for all gangs, and never two at a time
_GATHER_SECONDS = 0.1  # after a change, for those that come with it: the pods of a gang are created one after the other
_DRA = "resource.k8s.io/v1"
_SLICES = Collection(_DRA, "resourceslices", fields=f"spec.driver={DRIVER}")
_CLAIMS = Collection(_DRA, "resourceclaims")  # the API server cannot select them by driver
_LOOK_AGAIN_SECONDS = 60.0  # the longest time between two decisions while something waits for a moment
_FAILED = "a step for gang %s failed, so it stays as it is and is tried again in %g s; report this error, and delete its job if it waits for long"

Clock = Callable[[], float]


class GangPlacement:
    """The controller.

    Attributes:
        queue: has one key while there is something to decide; one worker may take it.
        writes: patches and evictions; any number of workers.
        groups: PodGroups that are created; any number of workers.
        roots: objects that are read; any number of workers.
        informers: keep nodes, the namespaces in which gangs are switched off, and what nodes offer by DRA. Pods come from outside: `reduce`
            and `pod_changed`. Claims are watched from the moment at which a node offers devices.
    """

    def __init__(
        self,
        api: StreamingApiServer,
        events: JobEvents,
        address: Address = lambda _: None,
        clock: Clock = time.monotonic,
        wall: Clock = time.time,
    ) -> None:
        """Place gangs by an API server.

        Args:
            api: the API server.
            events: writes events.
            address: finds the address that stays with the rank of a pod; None if it has none, or not yet.
            clock: returns seconds; `wall` returns those since 1970.
            wall: see `clock`.
        """
        self._clock, self._wall = clock, wall
        self._planning = GangPlanning()
        self._inbox: deque[Callable[[], None]] = deque()  # what happened, to be taken in by the thread that decides
        self._gather = _GATHER_SECONDS
        self._lock = threading.Lock()
        self._figures: dict[str, float] = {"waiting": 0, "placed": 0, "failed": 0, "plan_seconds": 0.0}
        self._evictions: Counter[str] = Counter()
        self._pods = GangPods()
        self.queue: WorkQueue[str] = WorkQueue()
        self.roots = GangRoots(api, self._answered, clock)
        self.writes = PodWrites(api, self._written, address)
        self.groups = PodGroupWrites(api, self._group_written)
        self._events = GangEvents(events, self.roots)
        slices = InformerWhereServed(api, _SLICES, pool_slice, self._slice_changed)
        claims = InformerWhereServed(
            api, _CLAIMS, device_claim, self._claim_changed, self._claims_listed, beside=slices
        )
        self.informers: Mapping[str, Informer[Any]] = {
            "resourceslices": slices,
            "resourceclaims": claims,
            "nodes": Informer(api, Collection("v1", "nodes"), node, self._node_changed),
            "namespaces with gangs off": Informer(
                api, Collection("v1", "namespaces", labels=f"{GATE}={OFF}"), _name, self._namespace_changed
            ),
        }
        self.queue.add(_ALL)

    def reduce(self, pod: ReportedPod) -> GangPod | None:
        """Reduce a pod as the API server reports it."""
        return self._pods.reduce(pod)

    def pod_changed(self, before: GangPod | None, after: GangPod | None) -> None:
        """Take in a pod that is new, changed or gone; by the informer's thread."""
        self._take_in(lambda: self._planning.pod_changed(before, after))

    def reconcile(self, key: str) -> float | None:  # noqa: ARG002 - there is one key
        """Decide for all gangs, and have it done; return the seconds after which to look again, or None."""
        began = self._clock()
        while self._inbox:
            self._happened(self._inbox.popleft())
        decision = self._planning.decide(began, self._wall(), self.roots.find)
        self._act(decision)
        took = self._clock() - began
        self._gather = max(_GATHER_SECONDS, took)  # half of the time at most is spent on decisions
        with self._lock:
            counts = {"waiting": decision.waiting, "placed": decision.placed, "failed": decision.failed}
            self._figures = {**counts, "plan_seconds": took}
        return None if decision.again is None else min(decision.again, _LOOK_AGAIN_SECONDS)

    def figures(self) -> Mapping[str, float]:
        """Return how many gangs wait, are placed and have failed, how many pods were evicted, and how long the last plan took."""
        with self._lock:
            return {**self._figures, "evictions": self._evictions["evictions"]}

    @staticmethod
    def _happened(happened: Callable[[], None]) -> None:
        try:
            happened()
        except Exception:  # noqa: BLE001 - one object must not end the work on all others
            _log.exception("a change was not taken in by the placement of gangs; report this error")

    def _act(self, decision: Decision) -> None:
        self.writes.put(decision.writes)
        self.groups.put(decision.groups)
        for asked in decision.asked_again:
            self.roots.ask_again(asked)
        for event in decision.said:
            self._events.say(event)
        for error in decision.impossible:
            _log.error("%s", error)
        for failure in decision.failures:
            _log.error(_FAILED, "/".join(failure.gang), failure.pause, exc_info=failure.error)

    def _node_changed(self, before: Node | None, after: Node | None) -> None:
        self._take_in(lambda: self._planning.observed.change_node(before, after))

    def _slice_changed(self, before: PoolSlice | None, after: PoolSlice | None) -> None:
        self._take_in(lambda: self._planning.observed.change_slice(before, after))

    def _claim_changed(self, before: DeviceClaim | None, after: DeviceClaim | None) -> None:
        self._take_in(lambda: self._planning.observed.change_claim(before, after))

    def _claims_listed(self) -> None:
        self._take_in(self._planning.observed.claims_listed)

    def _namespace_changed(self, before: str | None, after: str | None) -> None:
        namespace, off = after or before or "", after is not None
        self._take_in(lambda: self._planning.observed.switch(namespace, off=off))

    def _take_in(self, happened: Callable[[], None]) -> None:
        self._inbox.append(happened)
        self.queue.add(_ALL, self._gather)

    def _answered(self, asked: Asked) -> None:
        self._events.answered(asked)
        self.queue.add(_ALL)

    def _written(self, outcome: WriteOutcome) -> None:
        """Take in what came of a write. One that was done is not news: the watch reports it."""
        if isinstance(outcome.write, Evict) and not outcome.refusal:
            with self._lock:
                self._evictions["evictions"] += 1
        if outcome.refusal:
            self._take_in(lambda: self._refused(outcome))

    def _group_written(self, outcome: GroupOutcome) -> None:
        if outcome.refusal or outcome.waits:
            self._take_in(lambda: self._group_refused(outcome))

    def _group_refused(self, outcome: GroupOutcome) -> None:
        event = self._planning.group_outcome(outcome, self._clock())
        if event is not None:
            self._events.say(event)

    def _refused(self, outcome: WriteOutcome) -> None:
        event = self._planning.outcome(outcome, self._clock(), random.random())  # noqa: S311 - no secret
        if event is not None:
            self._events.say(event)


def _name(namespace: JsonObject) -> str:
    name: str = namespace["metadata"]["name"]
    return name
