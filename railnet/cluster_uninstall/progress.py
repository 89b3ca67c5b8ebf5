"""How far the nodes are: how many are done, which are not, why, and what to do. Pure.

A node is known by its pod of Railnet's alone: the command has no right to read nodes.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import NamedTuple

from railnet.apiserver.request import JsonObject
from railnet.cluster_uninstall.uninstall_mode import uninstalls
from railnet.objects.conditions import is_ready

_NAMED = 5
# kubelet takes a pod within a second, and a pod that it ends is gone when its grace period is over. Clocks may differ.
_SILENT_SECONDS = 60.0


class UninstallState(Enum):
    """What the pod of a node says of it: a heading, and what to do. `{namespace}`, `{pod}` and `{node}` are of the first such node."""

    heading: str
    advice: str

    DONE = ("Done", "")
    HAS_RAILS = (
        "Waiting for pods with rails",
        "`kubectl -n {namespace} logs {pod}` names the pods: delete them, or wait for their jobs",
    )
    SILENT = (
        "Not answering",
        "repair the node, delete it (`kubectl delete node {node}`), or go on without it (`helm uninstall --no-hooks`)",
    )
    FAILING = ("Not running", "`kubectl -n {namespace} describe pod {pod}` says why")
    OLD = ("Not yet replaced", "")

    def __init__(self, heading: str, advice: str) -> None:
        """Name the heading of the nodes in this state, and what to do about them; empty if time does it."""
        self.heading, self.advice = heading, advice


class NodePod(NamedTuple):
    """A pod of Railnet's on a node. `reason` says why its container does not run, if that is known."""

    node: str
    pod: str
    state: UninstallState
    reason: str = ""

    def __str__(self) -> str:
        """Name the node, its pod, and the reason."""
        return f"{self.node} ({', '.join(filter(None, (self.pod, self.reason)))})"


@dataclass(frozen=True, slots=True)
class UninstallProgress:
    """The state of all nodes.

    Attributes:
        complete: whether each DaemonSet is rolled out: each of its nodes is done.
        wanted: how many nodes there are.
        pods: the pods of Railnet's on these nodes.
    """

    namespace: str
    complete: bool
    wanted: int
    pods: tuple[NodePod, ...]

    def __str__(self) -> str:
        """Say it in one line, with what to do."""
        done = sum(pod.state is UninstallState.DONE for pod in self.pods)
        return ". ".join((f"{done} of {self.wanted} nodes are done", *self._not_done()))

    def _not_done(self) -> Iterator[str]:
        for state in UninstallState:
            pods = [pod for pod in self.pods if pod.state is state]
            if pods and state is not UninstallState.DONE:
                first = pods[0]
                advice = state.advice.format(namespace=self.namespace, pod=first.pod, node=first.node)
                yield "; ".join(filter(None, (f"{state.heading}: {_named(pods)}", advice)))
        missing = self.wanted - len(self.pods)
        if missing > 0:
            yield f"Without a pod of Railnet's at the moment: {missing}"


def progress(
    namespace: str, daemon_sets: Sequence[JsonObject], pods: Sequence[JsonObject], now: datetime
) -> UninstallProgress:
    """Return the state of the nodes of some DaemonSets.

    Args:
        namespace: of the DaemonSets.
        daemon_sets: as the API server returns them; all are in the uninstall mode.
        pods: all pods of the namespace, of others as well.
        now: the present time, with its zone.
    """
    owners = {daemon_set["metadata"]["uid"] for daemon_set in daemon_sets}
    node_pods = sorted(_node_pod(pod, now) for pod in pods if _is_owned(pod, owners))
    wanted = sum(_number(daemon_set, "desiredNumberScheduled") for daemon_set in daemon_sets)
    return UninstallProgress(namespace, all(map(_is_rolled_out, daemon_sets)), wanted, tuple(node_pods))


def _is_rolled_out(daemon_set: JsonObject) -> bool:
    """Return whether the DaemonSet's status is about its present generation, and each of its nodes has a new pod that is ready."""
    wanted = _number(daemon_set, "desiredNumberScheduled")
    is_present = _number(daemon_set, "observedGeneration") >= daemon_set["metadata"]["generation"]
    return is_present and all(_number(daemon_set, name) == wanted for name in ("updatedNumberScheduled", "numberReady"))


def _number(daemon_set: JsonObject, name: str) -> int:
    number: int = (daemon_set.get("status") or {}).get(name) or 0  # the API server leaves a zero out of some fields
    return number


def _is_owned(pod: JsonObject, owners: set[str]) -> bool:
    return any(owner["uid"] in owners for owner in pod["metadata"].get("ownerReferences") or ())


def _node_pod(pod: JsonObject, now: datetime) -> NodePod:
    state = _state(pod, now)
    reason = _reason(pod) if state is UninstallState.FAILING else ""
    return NodePod(pod["spec"].get("nodeName") or "no node yet", pod["metadata"]["name"], state, reason)


def _state(pod: JsonObject, now: datetime) -> UninstallState:
    if _is_silent(pod, now):
        return UninstallState.SILENT
    if pod["metadata"].get("deletionTimestamp") or not uninstalls(pod):
        return UninstallState.OLD
    if is_ready(pod):
        return UninstallState.DONE
    runs = any("running" in (container.get("state") or {}) for container in _containers(pod))
    return UninstallState.HAS_RAILS if runs else UninstallState.FAILING


def _is_silent(pod: JsonObject, now: datetime) -> bool:
    """Return whether the node's kubelet has not done in time what it should do with the pod, or another sign says that it is gone."""
    metadata, status = pod["metadata"], pod.get("status") or {}
    if status.get("reason") == "NodeLost" or status.get("phase") == "Unknown":
        return True
    if "deletionTimestamp" in metadata:  # the time at which the grace period is over
        return _seconds_since(metadata["deletionTimestamp"], now) > _SILENT_SECONDS
    if pod["spec"].get("nodeName") and not status.get("startTime"):  # kubelet writes it when it sees the pod
        return _seconds_since(metadata["creationTimestamp"], now) > _SILENT_SECONDS
    # kubelet says both or none. When it is gone, kube-controller-manager changes the condition alone.
    containers = _containers(pod)
    return bool(containers) and all(container.get("ready") for container in containers) and not is_ready(pod)


def _containers(pod: JsonObject) -> list[JsonObject]:
    containers: list[JsonObject] = (pod.get("status") or {}).get("containerStatuses") or []
    return containers


def _reason(pod: JsonObject) -> str:
    status = pod.get("status") or {}
    states = [state for container in _containers(pod) for state in (container.get("state") or {}).values()]
    reasons = (*(state.get("reason") for state in states if state), status.get("reason"), status.get("phase"))
    return next(filter(None, reasons), "")


def _seconds_since(timestamp: str, now: datetime) -> float:
    return (now - datetime.fromisoformat(timestamp)).total_seconds()


def _named(pods: Sequence[NodePod]) -> str:
    more = len(pods) - _NAMED
    return ", ".join((*map(str, pods[:_NAMED]), *([f"and {more} more"] if more > 0 else [])))
