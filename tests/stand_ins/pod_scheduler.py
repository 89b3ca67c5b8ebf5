"""A stand-in for kube-scheduler: which node a pod gets, one pod after another.

Pure, and independent of Railnet's planner, so that a mistake there is not made here again. Source: kubernetes at 1.36,
pkg/scheduler/framework/plugins: schedulinggates, nodeaffinity, nodeunschedulable, tainttoleration, nodeports and noderesources (fit.go,
least_allocated.go); k8s.io/component-helpers, resource/helpers.go (what a pod requests) and scheduling/corev1 (terms, tolerations).

Left out: affinity between pods, spreading, volumes, preemption, and the sampling of nodes. Of several nodes that one is taken whose labels
the pod prefers most, then the emptiest, then the first by name; kube-scheduler adds both up, and takes any of the best.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache
from typing import Any

_Object = Mapping[str, Any]
_UNITS = {
    **{
        suffix: Fraction(10) ** power
        for suffix, power in (("n", -9), ("u", -6), ("m", -3), ("k", 3), ("M", 6), ("G", 9))
    },
    **{suffix: Fraction(1024) ** power for suffix, power in (("Ki", 1), ("Mi", 2), ("Gi", 3), ("Ti", 4))},
}
_UNSCHEDULABLE = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
_SCORED = ("cpu", "memory")
_ENDED = ("Succeeded", "Failed")


class Unschedulable(ValueError):
    """No node can take the pod; the message says why, as the pod's condition does."""


@dataclass(slots=True)
class _Node:
    name: str
    labels: Mapping[str, str]
    taints: Sequence[Mapping[str, str]]
    allocatable: Mapping[str, Fraction]
    used: Counter[str] = field(default_factory=Counter)
    ports: set[tuple[str, int]] = field(default_factory=set)

    def add(self, pod: _Object) -> None:
        for resource, amount in requests(pod["spec"]).items():
            self.used[resource] += amount  # type: ignore[assignment]
        self.ports.update(_host_ports(pod["spec"]))

    def lacks(self, spec: _Object, asked: Mapping[str, Fraction]) -> Iterator[str]:
        """Yield why a pod that asks for so much cannot be here, in kube-scheduler's words."""
        if not _is_chosen(spec, self.labels, self.name):
            yield "node(s) didn't match Pod's node affinity/selector"
        untolerated = [one for one in self.taints if not _is_tolerated(one, spec.get("tolerations", ()))]
        if untolerated:
            yield f"node(s) had untolerated taint(s) {untolerated[0]['key']}"
        if self.ports.intersection(_host_ports(spec)):
            yield "node(s) didn't have free ports for the requested pod ports"
        for resource, amount in asked.items():
            if amount and amount > self.allocatable.get(resource, 0) - self.used[resource]:
                yield "Too many pods" if resource == "pods" else f"Insufficient {resource}"

    def fullness(self) -> tuple[Fraction, int, str]:
        """Return how full the node is; the least is taken."""
        shares = [self.used[one] / self.allocatable[one] for one in _SCORED if self.allocatable.get(one)]
        return Fraction(sum(shares)), self.used["pods"], self.name


class PodScheduler:
    """What is known of nodes and pods; grows with each pod that gets a node."""

    def __init__(self, nodes: Iterable[_Object], pods: Iterable[_Object]) -> None:
        """Take nodes and pods as the API server has them."""
        self._nodes = {one["metadata"]["name"]: _node(one) for one in nodes}
        for pod in pods:
            self.add(pod)

    def add(self, pod: _Object, node: str = "") -> None:
        """Count a pod that is on a node, and has not ended; one that is being deleted counts until it is gone."""
        found = self._nodes.get(node or pod["spec"].get("nodeName", ""))
        if found is not None and pod.get("status", {}).get("phase") not in _ENDED:
            found.add(pod)

    def place(self, pod: _Object) -> str:
        """Return the pod's node, and count the pod there.

        Raises:
            Unschedulable: no node can take it.
        """
        reasons: Counter[str] = Counter()
        fit: list[_Node] = []
        asked = requests(pod["spec"])
        for node in self._nodes.values():
            found = list(node.lacks(pod["spec"], asked))
            reasons.update(found)
            if not found:
                fit.append(node)
        if not fit:
            counted = ", ".join(f"{count} {reason}" for reason, count in sorted(reasons.items()))
            raise Unschedulable(f"0/{len(self._nodes)} nodes are available: {counted}.")
        best = min(fit, key=lambda one: (-_preference(pod["spec"], one.labels, one.name), one.fullness()))
        best.add(pod)
        return best.name


def waits(pod: _Object) -> bool:
    """Return whether a pod waits for the scheduler: it has no node and no gate, and nothing deletes it."""
    spec, metadata = pod["spec"], pod["metadata"]
    is_ours = spec.get("schedulerName", "default-scheduler") == "default-scheduler"
    is_open = not spec.get("nodeName") and not spec.get("schedulingGates")
    alive = not metadata.get("deletionTimestamp") and pod.get("status", {}).get("phase") not in _ENDED
    return is_ours and is_open and alive


def requests(spec: _Object) -> dict[str, Fraction]:
    """Return what a pod takes of its node: the larger of its containers and of the start of its init containers; and its overhead."""
    running: Counter[str] = Counter()
    most: dict[str, Fraction] = {}
    for one in spec.get("initContainers", ()):
        asked = _amounts(one)
        if one.get("restartPolicy") == "Always":  # a sidecar goes on while the next ones start
            running.update(asked)
            asked = {}
        _raise(most, {key: running[key] + asked.get(key, 0) for key in {*running, *asked}})
    for one in spec["containers"]:
        running.update(_amounts(one))
    _raise(most, running)
    for key, amount in spec.get("overhead", {}).items():
        most[key] = most.get(key, Fraction(0)) + quantity(str(amount))
    return {**most, "pods": Fraction(1)}


@cache
def quantity(text: str) -> Fraction:
    """Return the number that a quantity stands for."""
    digits = text.rstrip("numkKMGTi")
    return Fraction(digits) * _UNITS.get(text[len(digits) :], 1)


def _raise(most: dict[str, Fraction], to: Mapping[str, Any]) -> None:
    for key, amount in to.items():
        most[key] = max(most.get(key, Fraction(0)), amount)


def _amounts(container: _Object) -> dict[str, Any]:
    asked = container.get("resources", {}).get("requests", {})
    return {key: quantity(str(amount)) for key, amount in asked.items()}


def _host_ports(spec: _Object) -> set[tuple[str, int]]:
    ports = (port for one in spec["containers"] for port in one.get("ports", ()))
    return {(port.get("protocol", "TCP"), port["hostPort"]) for port in ports if port.get("hostPort")}


def _node(one: _Object) -> _Node:
    spec, metadata = one.get("spec", {}), one["metadata"]
    taints = [taint for taint in spec.get("taints", ()) if taint["effect"] != "PreferNoSchedule"]
    if spec.get("unschedulable"):
        taints.append(_UNSCHEDULABLE)
    allocatable = {key: quantity(str(amount)) for key, amount in one["status"].get("allocatable", {}).items()}
    return _Node(metadata["name"], metadata.get("labels", {}), taints, allocatable)


def _is_tolerated(taint: Mapping[str, str], tolerations: Iterable[Mapping[str, str]]) -> bool:
    return any(
        one.get("key", taint["key"]) == taint["key"]
        and one.get("effect", taint["effect"]) == taint["effect"]
        and (one.get("operator") == "Exists" or one.get("value", "") == taint.get("value", ""))
        for one in tolerations
    )


def _is_chosen(spec: _Object, labels: Mapping[str, str], name: str) -> bool:
    if any(labels.get(key) != value for key, value in spec.get("nodeSelector", {}).items()):
        return False
    affinity = spec.get("affinity", {}).get("nodeAffinity", {})
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    return required is None or any(_holds(term, labels, name) for term in required["nodeSelectorTerms"])


def _preference(spec: _Object, labels: Mapping[str, str], name: str) -> int:
    """Return how much the pod prefers a node, by the node's labels and name."""
    preferred = (
        spec.get("affinity", {}).get("nodeAffinity", {}).get("preferredDuringSchedulingIgnoredDuringExecution", ())
    )
    return sum(one["weight"] for one in preferred if _holds(one["preference"], labels, name))


def _holds(term: _Object, labels: Mapping[str, str], name: str) -> bool:
    """Return whether all of a term is met; a term without anything is met by no node."""
    on_labels, on_fields = term.get("matchExpressions", ()), term.get("matchFields", ())
    return bool(on_labels or on_fields) and (
        all(_is_met(one, labels) for one in on_labels)
        and all(_is_met(one, {"metadata.name": name}) for one in on_fields)
    )


def _is_met(one: _Object, labels: Mapping[str, str]) -> bool:
    value, values = labels.get(one["key"]), one.get("values", ())
    match one["operator"]:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case comparison:
            return value is not None and (
                int(value) > int(values[0]) if comparison == "Gt" else int(value) < int(values[0])
            )
