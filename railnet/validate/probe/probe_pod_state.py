"""Reads what a pod of a run says of itself: its rails, or what it waits for. Pure."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from railnet.apiserver.request import JsonObject
from railnet.objects.conditions import condition, unscheduled
from railnet.objects.metadata_times import is_deleted
from railnet.objects.network_status import PublishedRail, rails_of_pod
from railnet.objects.pod_phase import FAILED, phase

_NETDEV = "net"
_DISRUPTED = "DisruptionTarget"  # the condition of a pod that is preempted, evicted or drained
_LONGEST_REASON = 80


class PodRail(NamedTuple):
    """One rail of a pod.

    Attributes:
        rail: its number on the node.
        netdev: its name in the pod.
        address: its first IPv4 address, else its first IPv6 address; empty if it has none.
        mtu: of the netdev, in bytes; 0 if the pod's node does not say.
    """

    rail: int
    netdev: str
    address: str
    mtu: int


def rails(pod: JsonObject) -> tuple[PodRail, ...]:
    """Return the rails of a pod, one netdev of each; empty until its node has published them.

    A daemon before 0.5.0 does not publish the number of a rail. Then netN counts as rail N-1, which is right if the pod has all of its
    node's rails.
    """
    pod_rails = map(_rail, rails_of_pod(pod))
    return tuple({rail.rail: rail for rail in sorted(pod_rails, reverse=True)}.values())[::-1]


def runs(pod: JsonObject) -> bool:
    """Return whether a pod's container runs."""
    return any("running" in (container.get("state") or {}) for container in _status(pod).get("containerStatuses") or ())


def has_ended(pod: JsonObject) -> bool:
    """Return whether a pod has ended, so that it will not run any more: it is never started again."""
    return phase(pod) == FAILED


def taken_away(pod: JsonObject | None) -> str:
    """Return in words how the cluster has ended a pod, as a job that preempts it does; empty if it is there, or its container ended by itself.

    A pod that the API server does not have is None. kubelet writes a reason of the pod itself where it ends a pod: Evicted, Terminated,
    DeadlineExceeded (kubernetes/kubernetes, pkg/kubelet). A container that ends by itself leaves none.
    """
    if pod is None or is_deleted(pod["metadata"]):
        return "was deleted"
    reason, disrupted = _status(pod).get("reason"), condition(pod, _DISRUPTED)
    if disrupted is not None and disrupted.is_true:
        reason = disrupted.reason or _DISRUPTED
    return f"was ended by the cluster ({reason!s:.{_LONGEST_REASON}})" if reason else ""


def waits_for(pod: JsonObject, events: Iterable[JsonObject]) -> str:
    """Return why a pod cannot be used yet: what its conditions, its container and its newest warning say."""
    if runs(pod):
        return "its node has not published the pod's rails (annotation network-status)"
    status = _status(pod)
    parts = [*_of_conditions(pod), *_of_containers(status), *_of_events(pod, events)]
    return "; ".join(dict.fromkeys(parts)) or f"it is {status.get('phase') or 'not seen by a node yet'}"


def _of_conditions(pod: JsonObject) -> Iterator[str]:
    status, scheduled = _status(pod), unscheduled(pod)
    if scheduled is not None:
        yield f"{scheduled.reason or 'not scheduled'}: {scheduled.message}"
    if phase(pod) == FAILED:
        yield f"{status.get('reason', 'it failed')}: {status.get('message', 'its container ended')}"


def _of_containers(status: JsonObject) -> Iterator[str]:
    for container in status.get("containerStatuses") or ():
        state = container.get("state") or {}
        cause = state.get("waiting") or state.get("terminated") or {}
        if cause.get("reason", "ContainerCreating") != "ContainerCreating":
            yield f"{cause['reason']}: {cause.get('message', '')}".rstrip(": ")


def _of_events(pod: JsonObject, events: Iterable[JsonObject]) -> Iterator[str]:
    uid = pod["metadata"].get("uid")
    warnings = [
        event for event in events if event.get("type") == "Warning" and event["involvedObject"].get("uid") == uid
    ]
    newest = sorted(warnings, key=lambda event: str(event.get("lastTimestamp") or event.get("eventTime") or ""))[-1:]
    return (f"{event.get('reason')}: {event.get('message')}" for event in newest)


def _rail(published: PublishedRail) -> PodRail:
    rail = int(published.interface.removeprefix(_NETDEV)) - 1 if published.rail is None else published.rail
    addresses = sorted(
        published.addresses, key=lambda address: ":" in address
    )  # IPv4 first; the order of one version stays
    return PodRail(rail, published.interface, addresses[0] if addresses else "", published.mtu)


def _status(pod: JsonObject) -> JsonObject:
    status: JsonObject = pod.get("status") or {}
    return status
