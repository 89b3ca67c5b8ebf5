"""The decision about a pod's gang as a JSON Patch (RFC 6902); empty if nothing changes.

It adds a scheduling gate or the name of a PodGroup, the required node affinity, and a sentence to the explanation. Where the pod is left
alone, it removes a gate that nothing would ever remove.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from railnet.admission import explanation, railnet_annotations
from railnet.admission.gang.gang_decision import GangDecision, LeftAlone, Waits
from railnet.admission.gang.gang_explanation import waits
from railnet.admission.gang.node_affinity_narrowing import AFFINITY
from railnet.admission.patch import Operation, add, entries
from railnet.jobs.gang.engine import POD_GROUP_NAME, SCHEDULING_GROUP
from railnet.jobs.gang.recogniser import GATE


def operations(document: Mapping[str, Any], decision: GangDecision) -> list[Operation]:
    """Return the operations that bring the decision into a pod as the API server sent it."""
    spec = document["spec"]
    if isinstance(decision, LeftAlone):
        return list(_ungated(spec)) if decision.gated else []
    changes = [*_held(spec, decision), *_affinity(spec, decision)]
    if not changes:
        return []
    metadata = document["metadata"]
    before = (metadata.get("annotations") or {}).get(railnet_annotations.EXPLAIN)
    text = waits(decision) if before is None else f"{before}; then {waits(decision)}"
    explained = {railnet_annotations.EXPLAIN: text[: explanation.MAX_ANNOTATION]}
    return [*changes, *entries(metadata, "/metadata", "annotations", explained)]


def _held(spec: Mapping[str, Any], decision: Waits) -> Iterator[Operation]:
    """Yield what makes the pod wait."""
    if decision.group:
        if not decision.grouped:
            yield add(f"/spec/{SCHEDULING_GROUP}", {POD_GROUP_NAME: decision.group})
    elif not decision.gated:
        yield from _gated(spec)


def _gated(spec: Mapping[str, Any]) -> Iterator[Operation]:
    if spec.get("schedulingGates"):
        yield add("/spec/schedulingGates/-", {"name": GATE})
    else:
        yield add("/spec/schedulingGates", [{"name": GATE}])


def _ungated(spec: Mapping[str, Any]) -> Iterator[Operation]:
    names = [gate.get("name") for gate in spec.get("schedulingGates") or ()]
    for position in reversed(range(len(names))):  # the later ones first: a removal moves those after it
        if names[position] == GATE:
            yield {"op": "remove", "path": f"/spec/schedulingGates/{position}"}


def _affinity(spec: Mapping[str, Any], decision: Waits) -> Iterator[Operation]:
    """Yield the operation that sets the terms, with those parents that are missing."""
    if decision.terms is None:
        return
    value: Any = list(decision.terms)
    path, parent, missing = "/spec", spec, list(AFFINITY)
    while len(missing) > 1 and parent.get(missing[0]) is not None:
        parent, path = parent[missing[0]], f"{path}/{missing.pop(0)}"
    for key in reversed(missing[1:]):
        value = {key: value}
    yield add(f"{path}/{missing[0]}", value)
