"""Finds pods that Railnet does not place, although they name a gang: the webhook gives them no gate, and the controllers count them as any pods."""

from collections.abc import Iterator, Mapping
from typing import Any

from railnet.jobs.gang.engine import SCHEDULING_GROUP, named_pod_group, pod_group_name
from railnet.jobs.gang.recogniser import PLACEMENT, gang_name
from railnet.objects.pod import Pod

_DEFAULT_SCHEDULERS = ("", "default-scheduler")
_KUEUE = "kueue.x-k8s.io/"
_QUEUE = "kueue.x-k8s.io/queue-name"
_NATIVE = (SCHEDULING_GROUP, "workloadRef")  # Kubernetes 1.36 and newer; 1.35


def placed_by_others(pod: Pod, spec: Mapping[str, Any]) -> Iterator[str]:
    """Yield what else places a pod, a clause for each reason; nothing if Railnet may. `spec` is the pod's, as the API server sends it."""
    if pod.mirror:
        yield "it mirrors a static pod, and kubelet runs that pod from its file"
    if pod.owner_kind == "DaemonSet":
        yield "a DaemonSet makes it for one node"
    yield from _schedulers(pod, spec)


def names_own_group(pod: Pod, spec: Mapping[str, Any]) -> bool:
    """Return whether a pod names the PodGroup that Railnet makes for its gang."""
    gang = gang_name(pod)
    return bool(gang) and named_pod_group(spec) == pod_group_name(gang)


def waits_for_its_group(pod: Pod, spec: Mapping[str, Any]) -> bool:
    """Return whether a pod waits for the PodGroup that Railnet makes for its gang, and was not told its place yet."""
    return not pod.node and PLACEMENT not in pod.annotations and names_own_group(pod, spec)


def _schedulers(pod: Pod, spec: Mapping[str, Any]) -> Iterator[str]:
    if pod.scheduler not in _DEFAULT_SCHEDULERS:
        yield f"the scheduler {pod.scheduler:.63} places it"
    for key in _NATIVE:
        if spec.get(key) is not None and not (key == SCHEDULING_GROUP and names_own_group(pod, spec)):
            yield f"Kubernetes' own gang scheduling places it: it has spec.{key}"
    for gate in pod.gates:
        if gate.startswith(_KUEUE):
            yield f"Kueue places it: it has the gate {gate:.63}"
    if _QUEUE in pod.labels:
        yield f"Kueue places it: it has the label {_QUEUE}"
