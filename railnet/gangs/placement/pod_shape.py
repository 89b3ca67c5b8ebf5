"""All that a pod asks of its node, without the pod's name: gangs of a thousand pods have one shape, or two.

Sources: kubernetes/kubernetes, pkg/scheduler/framework/plugins: noderesources, nodeports, nodeaffinity, tainttoleration; and
component-helpers/scheduling/corev1/nodeaffinity for terms.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from railnet.jobs.gang.node_terms import Comparison, NodeTerm, Requirement
from railnet.objects.resource_amounts import is_extended, requested

EVERY_ADDRESS = "0.0.0.0"  # noqa: S104 - what a host port without an address is bound to
# Of one pod, in bytes of memory, roughly: its author may write 1.5 MB of requirements. It is enough for the names of two hundred nodes.
_MOST_BYTES = 32 << 10
_VALUE_BYTES = 64  # of a value beside its characters, and of a list or mapping beside its values
_MOST_RESOURCES = 16
# The scheduler asks nothing of a node for these.
_PLAIN_VOLUMES = ("configMap", "downwardAPI", "emptyDir", "hostPath", "image", "nfs", "projected", "secret")


class HostPort(NamedTuple):
    """A port of the node that a container is bound to."""

    port: int
    protocol: str = "TCP"
    address: str = EVERY_ADDRESS


class Toleration(NamedTuple):
    """A toleration; an empty key tolerates every key, an empty effect every effect."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class AffinityTerm(NamedTuple):
    """One of the terms of a required node affinity.

    Attributes:
        labels: requirements for the node's labels.
        fields: requirements for its fields; the only field is `metadata.name`.
    """

    labels: NodeTerm = NodeTerm(())
    fields: NodeTerm = NodeTerm(())

    def holds(self, name: str, labels: Mapping[str, str]) -> bool:
        """Return whether a node is as required; an empty term matches no node."""
        if not (self.labels.requirements or self.fields.requirements):
            return False
        return self.labels.holds(labels) and self.fields.holds({"metadata.name": name})


class Unseen(StrEnum):
    """A requirement of a pod that only the scheduler can check, because it depends on other pods or on other objects.

    Sources: pkg/scheduler/framework/plugins: interpodaffinity, podtopologyspread, volumebinding, volumezone, nodevolumelimits, volumerestrictions,
    dynamicresources, schedulinggates. What only scores nodes is none: preferred affinity, and `ScheduleAnyway`.
    """

    AFFINITY = "required pod affinity"
    ANTI_AFFINITY = "required pod anti-affinity"
    SPREAD = "topology spread constraints"
    VOLUMES = "volumes that not every node has"
    CLAIMS = "resource claims"
    GATES = "scheduling gates of others"
    LARGE = "more requirements of a node than Railnet keeps of one pod"


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Shape:
    """All that a pod asks of its node. Pods with equal shapes fit into the same places.

    Attributes:
        requests: the resources and how much of each, sorted; `pods` is one of them.
        selector: its `nodeSelector`, sorted.
        affinity: the terms of its required node affinity, of which one must hold; None without one.
        unseen: what else decides where the scheduler puts it, and the planner does not know; empty for most pods.
        scarce_first: the requests again, devices first: a node without a free one is passed over at once.
    """

    requests: tuple[tuple[str, int], ...]
    ports: tuple[HostPort, ...] = ()
    selector: tuple[tuple[str, str], ...] = ()
    affinity: tuple[AffinityTerm, ...] | None = None
    tolerations: tuple[Toleration, ...] = ()
    unseen: tuple[Unseen, ...] = ()
    scarce_first: tuple[tuple[str, int], ...] = field(init=False, repr=False, compare=False)
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        parts = (self.requests, self.ports, self.selector, self.affinity, self.tolerations, self.unseen)
        object.__setattr__(self, "_hash", hash(parts))
        scarce_first = tuple(
            sorted(self.requests, key=lambda request: (not is_extended(request[0]), request[0] == "pods"))
        )
        object.__setattr__(self, "scarce_first", scarce_first)

    def __hash__(self) -> int:
        return self._hash  # a shape is looked up for each member of each gang

    def may_be_on(self, name: str, labels: Mapping[str, str]) -> bool:
        """Return whether selector and affinity admit a node."""
        if any(labels.get(key) != value for key, value in self.selector):
            return False
        return self.affinity is None or any(term.holds(name, labels) for term in self.affinity)


def shape(spec: Mapping[str, Any]) -> Shape:
    """Read the shape of a pod from its `spec`. Of one with more requirements than are kept, only its first resources are read."""
    if bytes_of(spec) > _MOST_BYTES:
        return large_shape(spec)
    return Shape(
        requests=tuple(sorted(requested(spec).items())),
        ports=tuple(sorted(set(_ports(spec)))),
        selector=tuple(sorted((spec.get("nodeSelector") or {}).items())),
        affinity=_affinity(spec.get("affinity") or {}),
        tolerations=tuple(sorted({_toleration(toleration) for toleration in spec.get("tolerations") or ()})),
        unseen=tuple(sorted(set(_unseen(spec)))),
    )


def large_shape(spec: Mapping[str, Any]) -> Shape:
    """Return what is kept of a pod whose requirements are not: its first resources."""
    resources = sorted(
        requested(spec).items(), key=lambda request: (request[0] != "pods", is_extended(request[0]), request)
    )
    return Shape(tuple(sorted(resources[:_MOST_RESOURCES])), unseen=(Unseen.LARGE,))


def bytes_of(spec: Mapping[str, Any]) -> int:
    """Return how many bytes the shape of a pod takes, roughly."""
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    containers = (*(spec.get("containers") or ()), *(spec.get("initContainers") or ()))
    parts = (
        affinity.get("requiredDuringSchedulingIgnoredDuringExecution"),
        spec.get("nodeSelector"),
        spec.get("tolerations"),
        *(container.get("ports") for container in containers),
        *(container.get("resources") for container in containers),
        spec.get("resources"),
        spec.get("overhead"),
    )
    return sum(map(_bytes, parts))


def _bytes(part: Any) -> int:
    if isinstance(part, Mapping):
        return _VALUE_BYTES + sum(len(key) + _bytes(value) for key, value in part.items())
    if isinstance(part, list | tuple):
        return _VALUE_BYTES + sum(map(_bytes, part))
    return _VALUE_BYTES + (len(part) if isinstance(part, str) else 0)


def _unseen(spec: Mapping[str, Any]) -> Iterator[Unseen]:
    affinity = spec.get("affinity") or {}
    for field_name, kind in (("podAffinity", Unseen.AFFINITY), ("podAntiAffinity", Unseen.ANTI_AFFINITY)):
        if (affinity.get(field_name) or {}).get("requiredDuringSchedulingIgnoredDuringExecution"):
            yield kind
    spread = spec.get("topologySpreadConstraints") or ()
    if any(constraint.get("whenUnsatisfiable") != "ScheduleAnyway" for constraint in spread):
        yield Unseen.SPREAD
    if not all(_on_every_node(volume) for volume in spec.get("volumes") or ()):
        yield Unseen.VOLUMES
    if spec.get("resourceClaims"):
        yield Unseen.CLAIMS


def _on_every_node(volume: Mapping[str, Any]) -> bool:
    """Return whether a volume does not depend on the node; one without a source is an `emptyDir`."""
    return volume.keys() <= {"name", *_PLAIN_VOLUMES}


def _ports(spec: Mapping[str, Any]) -> Iterator[HostPort]:
    sidecars = (
        container for container in spec.get("initContainers") or () if container.get("restartPolicy") == "Always"
    )
    for container in (*(spec.get("containers") or ()), *sidecars):
        for port in container.get("ports") or ():
            if number := port.get("hostPort"):
                yield HostPort(number, port.get("protocol") or "TCP", port.get("hostIP") or EVERY_ADDRESS)


def _toleration(written: Mapping[str, Any]) -> Toleration:
    return Toleration(
        written.get("key") or "",
        written.get("operator") or "Equal",
        written.get("value") or "",
        written.get("effect") or "",
    )


def _affinity(written: Mapping[str, Any]) -> tuple[AffinityTerm, ...] | None:
    required = (written.get("nodeAffinity") or {}).get("requiredDuringSchedulingIgnoredDuringExecution")
    if required is None:
        return None
    return tuple(
        AffinityTerm(_term(term.get("matchExpressions")), _term(term.get("matchFields")))
        for term in required.get("nodeSelectorTerms") or ()
    )


def _term(written: Any) -> NodeTerm:
    return NodeTerm(
        tuple(
            Requirement(requirement["key"], Comparison(requirement["operator"]), tuple(requirement.get("values") or ()))
            for requirement in written or ()
        )
    )
