"""What a watch has reported of pods and Jobs: when each pod was bound, where, and when it ended."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

_ENDED = ("Succeeded", "Failed")


@dataclass(slots=True)
class PodTimes:
    """One pod; times are of one clock, in seconds.

    Attributes:
        gang: the name of its Job.
        node: where it is; empty before it is bound.
        bound: when it was first reported with a node.
        ended: when it was first reported as complete, failed or gone.
        lost: whether it was deleted or failed before it was complete.
    """

    gang: str
    node: str = ""
    bound: float | None = None
    ended: float | None = None
    lost: bool = False


@dataclass(slots=True)
class Record:
    """Of all pods of a run, by UID, and of Jobs that failed.

    Attributes:
        pods: by UID.
        bound: by gang, how many pods were bound so far.
        failed: the names of Jobs that failed.
    """

    pods: dict[str, PodTimes] = field(default_factory=dict)
    bound: dict[str, int] = field(default_factory=dict)
    failed: set[str] = field(default_factory=set)

    def observe_pod(self, at: float, kind: str, pod: Mapping[str, Any]) -> None:
        """Take what a watch reports of a pod; repeated events change nothing."""
        metadata = pod["metadata"]
        gang = metadata.get("labels", {}).get("job-name", "")
        times = self.pods.setdefault(metadata["uid"], PodTimes(gang))
        phase, node = pod["status"].get("phase", ""), pod["spec"].get("nodeName", "")
        if node and times.bound is None:
            times.bound, times.node = at, node
            self.bound[gang] = self.bound.get(gang, 0) + 1
        if times.ended is None:
            if phase == "Failed" or (metadata.get("deletionTimestamp") and phase != "Succeeded"):
                times.lost = True
            if phase in _ENDED or kind == "DELETED":
                times.ended, times.lost = at, times.lost or phase != "Succeeded"

    def observe_job(self, job: Mapping[str, Any]) -> None:
        """Take what a watch reports of a Job."""
        conditions = job.get("status", {}).get("conditions", ())
        if any(condition["type"] == "Failed" and condition["status"] == "True" for condition in conditions):
            self.failed.add(job["metadata"]["name"])
