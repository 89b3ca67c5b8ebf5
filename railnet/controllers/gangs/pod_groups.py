"""Creates and deletes the PodGroups that a pass over all gangs decided, by several workers, and reports what came of each.

A PodGroup that exists already is Railnet's own, which an earlier leader or a second one has created; or it is someone else's, and is left
alone. Of an own one, only how many pods start together is changed, because Kubernetes permits no other change.
"""

import threading
from collections.abc import Callable, Mapping

from railnet.apiserver.client import Absent, ApiServer, Conflict, RequestFailed
from railnet.apiserver.request import JsonObject, create, delete, get, merge_patch
from railnet.controllers.work_queue import WorkQueue
from railnet.gangs.placement.gang import GangKey
from railnet.gangs.pod_group import PodGroup, address, is_railnets, pod_group, why_it_waits
from railnet.gangs.pod_groups import GroupOutcome

_NOT_SERVED = (
    "the API server serves no PodGroups of scheduling.k8s.io/v1beta1, for which the pods of this gang wait. Have it serve them again "
    "(docs/training/gangs.md, Engines), or create the job again: new pods wait behind a gate"
)


class PodGroupWrites:
    """The PodGroups that are to be created or deleted: at most one for each gang.

    Attributes:
        queue: the gangs whose PodGroups are to be written; any number of workers.
    """

    def __init__(self, api: ApiServer, report: Callable[[GroupOutcome], object]) -> None:
        """Create through an API server; `report` is called by a worker's thread."""
        self._api, self._report = api, report
        self._lock = threading.Lock()
        self._wanted: dict[GangKey, PodGroup | None] = {}
        self.queue: WorkQueue[GangKey] = WorkQueue()

    def put(self, groups: Mapping[GangKey, PodGroup | None]) -> None:
        """Have PodGroups created, or with None deleted; what is newer of a gang replaces what waits."""
        with self._lock:
            self._wanted.update(groups)
        for gang in groups:
            self.queue.add(gang)

    def reconcile(self, gang: GangKey) -> None:
        """Create the PodGroup of a gang, look at it, or delete it.

        Raises:
            RequestFailed: it was not done, and is to be tried again.
        """
        with self._lock:
            if gang not in self._wanted:
                return
            wanted = self._wanted[gang]
        try:
            outcome = self._delete(gang) if wanted is None else self._create(wanted)
        except RequestFailed as error:
            if error.temporary:
                raise
            outcome = GroupOutcome(gang, str(error))
        with self._lock:
            if self._wanted.get(gang, self) is wanted:
                del self._wanted[gang]
        self._report(outcome)

    def _create(self, wanted: PodGroup) -> GroupOutcome:
        try:
            self._api.send(create(wanted.about, pod_group(wanted)))
        except Absent:
            return GroupOutcome(wanted.gang, _NOT_SERVED)
        except Conflict:
            return self._existing(wanted)
        return GroupOutcome(wanted.gang)

    def _delete(self, gang: GangKey) -> GroupOutcome:
        """Delete an own PodGroup; the API server keeps it as long as pods name it."""
        try:
            existing = self._api.send(get(address(gang)))
            if is_railnets(existing):
                self._api.send(delete(address(gang), existing["metadata"]["uid"]))
        except (Absent, Conflict):
            pass
        return GroupOutcome(gang)

    def _existing(self, wanted: PodGroup) -> GroupOutcome:
        """Look at a PodGroup that exists.

        Raises:
            RequestFailed: it is gone in this moment, or the API server does not answer.
        """
        existing = self._api.send(get(wanted.about))
        if not is_railnets(existing):
            name = wanted.about.name
            text = f"someone else has created a PodGroup {name}, which Railnet leaves alone; delete it, or give the gang another name"
            return GroupOutcome(wanted.gang, text)
        if _least(existing) > wanted.least > 0:
            self._api.send(merge_patch(wanted.about, _change(existing, wanted.least)))
        return GroupOutcome(wanted.gang, waits=why_it_waits(existing))


def _least(existing: JsonObject) -> int:
    least: int = existing["spec"]["schedulingPolicy"].get("gang", {}).get("minCount", 0)
    return least


def _change(existing: JsonObject, least: int) -> JsonObject:
    metadata = {name: existing["metadata"][name] for name in ("uid", "resourceVersion")}
    return {"metadata": metadata, "spec": {"schedulingPolicy": {"gang": {"minCount": least}}}}
