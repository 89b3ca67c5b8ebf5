"""Which nodes `railnet validate --idle` may try: those of which no pod has a VF or a GPU; and which pods wait for one. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from railnet.fabric.rails_condition import TAINT
from railnet.jobs.gpus import is_gpu
from railnet.objects.node_taints import has_taint
from railnet.objects.pod_phase import ENDED, phase
from railnet.objects.resource_amounts import requested
from railnet.objects.times import moment
from railnet.validate.idle.node_verdict import TYPE
from railnet.validate.probe.probe_objects import LABEL, Run


class IdleNodes(NamedTuple):
    """The nodes that may be tried, the one whose last try is the oldest first; and why others may not."""

    names: tuple[str, ...]
    left_alone: Mapping[str, str]


class WaitingPod(NamedTuple):
    """A pod that waits for devices, and since when in seconds since 1970; 0 if that is not known."""

    uid: str
    created: float
    words: str


def idle_nodes(nodes: Iterable[Mapping[str, Any]], pods: Iterable[Mapping[str, Any]], run: Run) -> IdleNodes:
    """Tell idle nodes from those that are left alone."""
    busy = dict(busy_nodes(pods, run))
    left_alone: dict[str, str] = {}
    tried: dict[str, str] = {}
    for node in nodes:
        name = node["metadata"]["name"]
        if why := busy.get(name) or _kept_free(node):
            left_alone[name] = why
        else:
            tried[name] = _tried(node)
    return IdleNodes(tuple(sorted(tried, key=lambda name: (tried[name], name))), left_alone)


def waiting_pods(pods: Iterable[Mapping[str, Any]], run: Run) -> Iterator[WaitingPod]:
    """Yield the pods that wait for a node with VFs, GPUs or devices of a claim, behind a gate or not; but none of a run of `railnet validate`."""
    for pod in pods:
        spec, metadata = pod.get("spec") or {}, pod["metadata"]
        if LABEL in (metadata.get("labels") or {}):
            continue
        if not spec.get("nodeName") and phase(pod) not in ENDED and (devices := _devices(spec, run)):
            words = f"pod {metadata['namespace']}/{metadata['name']} waits for {devices}"
            yield WaitingPod(str(metadata.get("uid")), moment(metadata.get("creationTimestamp")) or 0.0, words)


def busy_nodes(pods: Iterable[Mapping[str, Any]], run: Run) -> Iterator[tuple[str, str]]:
    """Yield the nodes where a pod has a VF, a GPU or devices of a claim, with that pod in words; but none for the pods of a run itself."""
    for pod in pods:
        spec, metadata = pod.get("spec") or {}, pod["metadata"]
        node = spec.get("nodeName")
        if not node or phase(pod) in ENDED or _is_of(run, metadata):
            continue
        if devices := _devices(spec, run):
            yield node, f"pod {metadata['namespace']}/{metadata['name']} has {devices}"


def _is_of(run: Run, metadata: Mapping[str, Any]) -> bool:
    return metadata["namespace"] == run.namespace and (metadata.get("labels") or {}).get(LABEL) == run.name


def _devices(spec: Mapping[str, Any], run: Run) -> str:
    """Return which devices a pod asks for, in words; empty for none that a try could keep from it."""
    names = [name for name in requested(spec) if name in run.all_resources or is_gpu(name)]
    if names:
        return names[0]
    return "devices of a claim" if spec.get("resourceClaims") else ""


def _kept_free(node: Mapping[str, Any]) -> str:
    if (node.get("spec") or {}).get("unschedulable"):
        return "it is cordoned"
    return f"it has the taint {TAINT}" if has_taint(node, TAINT) else ""


def _tried(node: Mapping[str, Any]) -> str:
    """Return when a node was tried last, as the API server writes times; empty if it never was."""
    conditions = (node.get("status") or {}).get("conditions") or ()
    times = [condition.get("lastHeartbeatTime") for condition in conditions if condition.get("type") == TYPE]
    return str(times[0] or "") if times else ""
