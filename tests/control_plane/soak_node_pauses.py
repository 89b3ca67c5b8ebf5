"""What the API server says of pods that the real node of a soak failed, in the form that `simnode.chaos.job_pauses` takes. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from railnet.objects.times import moment
from simnode.chaos.job_pauses import PodSeen

_INDEX = "batch.kubernetes.io/job-completion-index"
_OF_JOB = "batch.kubernetes.io/job-name"  # the Job controller labels its pods with it
_REFUSED = "UnexpectedAdmissionError"
_NOT_STARTED = "StartError"  # containerd's, as when kubelet ended while a container was started
_FAILED_TRIES = frozenset({"FailedCreatePodSandBox", "Failed"})  # kubelet's: a sandbox; the start of a container
# In the words of an ADD that Railnet refused: that is Railnet's fault, not the node's.
_RAILNETS = 'plugin type="railnet"'


def seen(pods: Iterable[Mapping[str, Any]], events: Sequence[Mapping[str, Any]]) -> list[PodSeen]:
    """Return what was seen of the pods of one job; `events` are those of its namespace."""
    return [_seen(pod, [one for one in events if _is_of(one, pod)]) for pod in pods]


def _is_of(event: Mapping[str, Any], pod: Mapping[str, Any]) -> bool:
    from_kubelet = event.get("source", {}).get("component") == "kubelet"
    return from_kubelet and bool(event["involvedObject"].get("uid") == pod["metadata"]["uid"])


def _seen(pod: Mapping[str, Any], events: Sequence[Mapping[str, Any]]) -> PodSeen:
    labels = pod["metadata"].get("labels", {})
    created = moment(pod["metadata"]["creationTimestamp"])
    states = [one.get("state", {}) for one in pod["status"].get("containerStatuses", ())]
    tries = [one for one in events if one["reason"] in _FAILED_TRIES and _RAILNETS not in one["message"]]
    return PodSeen(
        0.0 if created is None else created,
        _failed(pod, events, states) if _OF_JOB in labels else None,
        _times(tries, "firstTimestamp", "lastTimestamp"),
        next(iter(_times([state.get("running", {}) for state in states], "startedAt")), None),
        labels.get(_INDEX, ""),
    )


def _failed(
    pod: Mapping[str, Any], events: Sequence[Mapping[str, Any]], states: Sequence[Mapping[str, Any]]
) -> float | None:
    """Return when the node failed a pod: kubelet refused it, or its container was never started."""
    if pod["status"].get("phase") != "Failed":
        return None
    refusals = [one for one in events if one["reason"] == pod["status"].get("reason") == _REFUSED]
    ends = [state.get("terminated", {}) for state in states]
    not_started = [end for end in ends if end.get("reason") == _NOT_STARTED]
    times = (*_times(refusals, "firstTimestamp"), *_times(not_started, "finishedAt"))
    return min(times, default=None)


def _times(objects: Sequence[Mapping[str, Any]], *keys: str) -> tuple[float, ...]:
    found = {moment(one.get(key)) for one in objects for key in keys}
    return tuple(sorted(at for at in found if at is not None))
