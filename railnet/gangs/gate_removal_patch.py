"""The one patch that admits a pod: the selector of its domain, the node that it should have, its placement, its address, and no gate.

All of it is in one write, so no leader that dies leaves a pod that is admitted without its selector. The pod's `resourceVersion` is
tested: a patch that was made from an older state of the pod is refused, and the gang is planned again.

Kubernetes lets a gated pod's node selector be added to, and its preferred node affinity be changed freely (KEP-3838).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from railnet.apiserver.request import JsonObject
from railnet.gangs import placement_annotation
from railnet.gangs.placement_annotation import Placed
from railnet.jobs.gang.recogniser import GATE, PLACEMENT
from railnet.vf.permitted_networks import ADDRESS_ANNOTATION

HOSTNAME = "kubernetes.io/hostname"
_PREFERRED = ("affinity", "nodeAffinity", "preferredDuringSchedulingIgnoredDuringExecution")
_MOST_WEIGHT = 100
_LONGEST_NAME = 253  # of a node: a DNS subdomain


@dataclass(frozen=True, slots=True)
class Gated:
    """The pod's present state, as far as the patch and the nomination before it need it.

    Attributes:
        version: its `resourceVersion`.
        gate: the position of the gate among the pod's scheduling gates. Those of others stay.
        selects: whether the pod has a node selector.
        prefers: how many of `_PREFERRED` the pod's specification has, from the first on.
        nominated: the node on which the scheduler keeps room for the pod already; empty for none.
    """

    version: str
    gate: int
    selects: bool
    annotated: bool
    prefers: int = 0
    nominated: str = ""


def gated(pod: JsonObject) -> Gated | None:
    """Read a pod as the API server reports it; None if it does not wait behind the gate."""
    spec, metadata = pod["spec"], pod["metadata"]
    for position, gate in enumerate(spec.get("schedulingGates") or ()):
        if gate.get("name") == GATE:
            selects, annotated = bool(spec.get("nodeSelector")), bool(metadata.get("annotations"))
            version = str(metadata.get("resourceVersion") or "")
            return Gated(version, position, selects, annotated, _depth(spec), nominated_node(pod))
    return None


def nominated_node(pod: JsonObject) -> str:
    """Return the node on which the scheduler keeps room for a pod; empty for none, and for a text that is no node's name."""
    name: str = (pod.get("status") or {}).get("nominatedNodeName") or ""
    return name if len(name) <= _LONGEST_NAME else ""


def steps(pod: Gated, placed: Placed | None, host: str = "", address: str | None = None) -> list[JsonObject]:
    """Return the patch that admits a pod.

    Args:
        pod: the pod's present state.
        placed: None for a pod that is of no gang any more, and may be anywhere.
        host: the host name of the node on which the planner keeps room for it; empty for none.
        address: its sticky address; None if it has none, or not yet.
    """
    annotations = {} if placed is None else {PLACEMENT: placement_annotation.written(placed)}
    if address is not None:
        annotations[ADDRESS_ANNOTATION] = address
    gate = f"/spec/schedulingGates/{pod.gate}"
    return [
        {"op": "test", "path": "/metadata/resourceVersion", "value": pod.version},
        {"op": "test", "path": gate, "value": {"name": GATE}},
        *_added("/spec/nodeSelector", {} if placed is None else dict(placed.domain), there=pod.selects),
        *_preferred(pod.prefers, host),
        *_added("/metadata/annotations", annotations, there=pod.annotated),
        {"op": "remove", "path": gate},
    ]


def _depth(spec: JsonObject) -> int:
    section: Any = spec
    for depth, key in enumerate(_PREFERRED):
        section = section.get(key)
        if section is None:
            return depth
    return len(_PREFERRED)


def _preferred(there: int, host: str) -> Iterator[JsonObject]:
    """Yield the step by which the scheduler prefers a node: otherwise it would spread the pods of a gang over nodes that are kept for others."""
    if not host:
        return
    expression = {"key": HOSTNAME, "operator": "In", "values": [host]}
    term = {"weight": _MOST_WEIGHT, "preference": {"matchExpressions": [expression]}}
    path, value = "/".join(("/spec", *_PREFERRED[: there + 1])), [term]
    if there == len(_PREFERRED):
        yield {"op": "add", "path": f"{path}/-", "value": term}
        return
    affinity: Any = value
    for key in reversed(_PREFERRED[there + 1 :]):
        affinity = {key: affinity}
    yield {"op": "add", "path": path, "value": affinity}


def _added(path: str, values: Mapping[str, str], *, there: bool) -> Iterator[JsonObject]:
    """Yield the steps that add values to a map, which is created if it is missing."""
    if not there and values:
        yield {"op": "add", "path": path, "value": dict(values)}
        return
    for key, value in values.items():
        yield {"op": "add", "path": f"{path}/{_escaped(key)}", "value": value}


def _escaped(key: str) -> str:
    """Write a key as a part of a JSON pointer (RFC 6901)."""
    return key.replace("~", "~0").replace("/", "~1")
