"""A node as the planner sees it: labels, taints, and what it has for pods."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from railnet.gangs.placement.pod_shape import Toleration
from railnet.objects.conditions import is_ready
from railnet.objects.resource_amounts import Amounts, allocatable, capacity, is_extended

_KEEPS_PODS_OFF = ("NoSchedule", "NoExecute")


class Taint(NamedTuple):
    """A taint that keeps pods off the node."""

    key: str
    value: str = ""
    effect: str = "NoSchedule"


# A cordoned node has this taint a moment later; DaemonSets tolerate it (pkg/scheduler/framework/plugins/nodeunschedulable).
_UNSCHEDULABLE = Taint("node.kubernetes.io/unschedulable")


@dataclass(frozen=True, slots=True)
class Node:
    """A node.

    Attributes:
        allocatable: what it has for pods.
        taints: those that keep pods off; a cordoned node has one for that.
        ready: whether its kubelet is well.
        at_best: what it has when all its devices are well; empty: what it has now. A device plugin that starts again has none for a moment.
    """

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    allocatable: Amounts = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    ready: bool = True
    at_best: Amounts = field(default_factory=dict)


def node(document: Mapping[str, Any]) -> Node:
    """Read a node from the API server's JSON."""
    metadata, spec = document["metadata"], document.get("spec") or {}
    room = allocatable(document)
    taints = {
        Taint(taint.get("key") or "", taint.get("value") or "", taint.get("effect") or "")
        for taint in spec.get("taints") or ()
        if taint.get("effect") in _KEEPS_PODS_OFF
    }
    return Node(
        name=metadata["name"],
        labels=dict(metadata.get("labels") or {}),
        allocatable=room,
        taints=tuple(sorted(taints | ({_UNSCHEDULABLE} if spec.get("unschedulable") else set()))),
        ready=is_ready(document),
        at_best=room
        | {
            resource: max(amount, room.get(resource, 0))
            for resource, amount in capacity(document).items()
            if is_extended(resource)
        },
    )


def tolerated(taints: Iterable[Taint], tolerations: Iterable[Toleration]) -> bool:
    """Return whether a pod with these tolerations may start on a node with these taints."""
    return all(any(_tolerates(toleration, taint) for toleration in tolerations) for taint in taints)


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Compare as k8s.io/api, core/v1, Toleration.ToleratesTaint does."""
    if toleration.effect not in ("", taint.effect) or toleration.key not in ("", taint.key):
        return False
    return toleration.operator == "Exists" or (toleration.operator == "Equal" and toleration.value == taint.value)
