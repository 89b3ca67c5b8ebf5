"""Patches and evictions of pods, by many workers at a time: what a pass over all gangs decided is done here, and each outcome is reported.

A pod that gets a place is first nominated for its node, while it still has its gate. The scheduler counts nominated pods as if they were
on the node when it looks for room for others of the same or lower priority, and tries that node first for the pod itself (KEP-5278;
kubernetes/kubernetes, pkg/scheduler/backend/queue/nominator.go). So no other pod takes the place between the gate and the binding.

A request that may succeed later is sent again, with pauses; one that is refused is reported, and the next pass decides anew.
"""

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from http import HTTPStatus

from railnet.apiserver.client import Absent, ApiServer, RequestFailed
from railnet.apiserver.request import ApiObject, JsonObject, Request, evict, json_patch, merge_patch
from railnet.controllers.work_queue import WorkQueue
from railnet.gangs import placement_annotation
from railnet.gangs.gate_removal_patch import steps
from railnet.gangs.placement_annotation import Placed
from railnet.gangs.planning_result import Admit, Annotate, Evict, Recall, Withdraw, Write, WriteOutcome
from railnet.gangs.pod_group import Grouped, placement_patch
from railnet.jobs.gang.recogniser import PLACEMENT
from railnet.objects.pod_name import PodName

_log = logging.getLogger(__name__)
Address = Callable[[PodName], str | None]


class PodWrites:
    """The writes that are to be done: at most one for each pod.

    Attributes:
        queue: the pods that are to be written; any number of workers.
    """

    def __init__(
        self, api: ApiServer, report: Callable[[WriteOutcome], object], address: Address = lambda _: None
    ) -> None:
        """Write through an API server; `report` is called by a worker's thread, `address` finds the sticky address of a pod."""
        self._api, self._report, self._address = api, report, address
        self._lock = threading.Lock()
        self._writes: dict[PodName, Write] = {}
        self._nominated: dict[PodName, str] = {}  # pod whose gate is still to be removed → its resourceVersion
        self._cannot_nominate = False  # said once
        self.queue: WorkQueue[PodName] = WorkQueue()

    def put(self, writes: Mapping[PodName, Write]) -> None:
        """Have pods written; a newer write of a pod replaces one that waits."""
        with self._lock:
            self._writes.update(writes)
            for pod in writes:
                self._nominated.pop(pod, None)
        for pod in writes:
            self.queue.add(pod)

    def reconcile(self, pod: PodName) -> None:
        """Do the write of a pod.

        Raises:
            RequestFailed: it was not done, and is to be sent again.
        """
        with self._lock:
            write = self._writes.get(pod)
        if write is None:
            return
        try:
            refusal = self._send(pod, write)
        except RequestFailed as error:
            forbidden = error.status == HTTPStatus.FORBIDDEN
            self._report(WriteOutcome(pod, write, str(error), waits=True, forbidden=forbidden))
            raise
        with self._lock:
            if self._writes.get(pod) is write:
                del self._writes[pod]
                self._nominated.pop(pod, None)
        self._report(WriteOutcome(pod, write, refusal))

    def _send(self, pod: PodName, write: Write) -> str:
        """Return what the API server said; empty if the write is done, or its pod is gone.

        Raises:
            RequestFailed: the same request may succeed later.
        """
        about = ApiObject("v1", "pods", pod.name, pod.namespace)
        try:
            if isinstance(write, Admit) and _nominates(write):
                write = self._nominate(about, pod, write)
            self._api.send(self._request(about, pod, write))
        except Absent:
            return ""
        except (
            RequestFailed
        ) as error:  # also a conflict: the UID is another pod's, or the pod has changed, also under its eviction
            if error.temporary or error.status == HTTPStatus.FORBIDDEN:  # a right may be granted
                raise
            return str(error)
        return ""

    def _nominate(self, about: ApiObject, pod: PodName, write: Admit) -> Admit:
        """Nominate a pod for its node, and return the write for the pod as it is then.

        A request that is sent again does not nominate it again: its `resourceVersion` is another one by then. Where a right is missing, or a
        policy forbids the nomination, the gate is removed without it: another pod may take the place then, but the gang does not wait for ever.

        Raises:
            RequestFailed: it was not done; also if the pod has changed since the write was decided.
        """
        with self._lock:
            version = self._nominated.get(pod)
        if version is None:
            node = "" if write.placed is None else write.placed.node
            try:
                nominated = self._api.send(_status_patch(about, pod, node, write.gated.version))
            except RequestFailed as error:
                if error.temporary or error.status in (HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT):
                    raise
                self._note_no_nomination(error)
                return write
            version = nominated["metadata"]["resourceVersion"]
            with self._lock:
                self._nominated[pod] = version
        return write._replace(gated=replace(write.gated, version=version))

    def _note_no_nomination(self, error: RequestFailed) -> None:
        with self._lock:
            is_known, self._cannot_nominate = self._cannot_nominate, True
        if not is_known:
            _log.warning(
                "pods of gangs are not nominated for their nodes, so other pods may take their places: %s", error
            )

    def _request(self, about: ApiObject, pod: PodName, write: Write) -> Request:
        if isinstance(write, Evict):
            return evict(about, pod.uid)
        if isinstance(write, Withdraw):
            return _status_patch(about, pod, None)
        if isinstance(write, Recall):
            return merge_patch(about, {"metadata": {"uid": pod.uid, "annotations": {PLACEMENT: None}}})
        if isinstance(write, Annotate):
            text = placement_annotation.written(write.placed)
            # A UID in a merge patch is a precondition (kubernetes/kubernetes#86320).
            return merge_patch(about, {"metadata": {"uid": pod.uid, "annotations": {PLACEMENT: text}}})
        if isinstance(write.gated, Grouped):
            # One without a place is let go by its PodGroup, so there is none here.
            return merge_patch(about, placement_patch(pod.uid, write.gated, write.placed or Placed((), 1)))
        return json_patch(about, steps(write.gated, write.placed, write.host, self._address(pod)))


def _nominates(write: Admit) -> bool:
    """Return whether a pod is nominated before its gate is removed: it has a node, and a leader before this one has not nominated it."""
    return write.nominates and write.placed is not None and write.placed.node not in ("", write.gated.nominated)


def _status_patch(about: ApiObject, pod: PodName, node: str | None, version: str = "") -> Request:
    """Nominate a pod for a node, or for none; UID and `resourceVersion` are preconditions."""
    metadata = {"uid": pod.uid, **({"resourceVersion": version} if version else {})}
    patch: JsonObject = {"metadata": metadata, "status": {"nominatedNodeName": node}}
    return merge_patch(replace(about, subresource="status"), patch)
