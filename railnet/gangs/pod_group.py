"""A gang as a PodGroup of Kubernetes (`scheduling.k8s.io/v1beta1`): what it is, when it is due, and what its pods are told before. Pure.

Pods that name a PodGroup wait until it exists. So the planner finds a place as for pods behind a gate; each pod is nominated for its node and
gets the annotation of its place; and when all have it, the PodGroup is created with the label of the level that was found. From then on the
scheduler starts the pods together. It tries the node for which a pod is nominated first, and gives that room to no other pod of the same or
lower priority.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from railnet.apiserver.request import ApiObject, JsonObject
from railnet.gangs import placement_annotation
from railnet.gangs.gate_removal_patch import nominated_node
from railnet.gangs.placement.gang import GangKey
from railnet.gangs.placement_annotation import Placed
from railnet.jobs.gang.engine import named_pod_group, pod_group_name
from railnet.jobs.gang.recogniser import PLACEMENT
from railnet.objects.involved_object import InvolvedObject
from railnet.objects.owner_reference import OwnerReference

API_VERSION, KIND, RESOURCE = "scheduling.k8s.io/v1beta1", "PodGroup", "podgroups"
_MADE_BY = {"app.kubernetes.io/managed-by": "railnet"}
_SCHEDULED = "PodGroupInitiallyScheduled"


@dataclass(frozen=True, slots=True)
class Grouped:
    """A pod that waits for a PodGroup, as far as the nomination and the annotation need it.

    Attributes:
        version: its `resourceVersion`.
        nominated: the node on which the scheduler keeps room for it already; empty for none.
    """

    version: str
    nominated: str = ""


@dataclass(frozen=True, slots=True)
class PodGroup:
    """A PodGroup that is to be created.

    Attributes:
        key: the label whose values are the domains; empty for any nodes.
        least: how many pods start together; 0: each by itself.
        priority_class: that of all its pods.
        owners: the objects with which it goes.
    """

    gang: GangKey
    key: str
    least: int
    priority_class: str
    owners: tuple[InvolvedObject | OwnerReference, ...]

    @property
    def about(self) -> ApiObject:
        """Its address."""
        return address(self.gang)


def address(gang: GangKey) -> ApiObject:
    """Return the address of the PodGroup of a gang."""
    namespace, name = gang
    return ApiObject(API_VERSION, RESOURCE, pod_group_name(name), namespace)


def grouped(pod: JsonObject, gang: str) -> Grouped | None:
    """Read a pod as the API server reports it; None if it names no PodGroup of Railnet's."""
    if named_pod_group(pod["spec"]) != pod_group_name(gang):
        return None
    return Grouped(str(pod["metadata"].get("resourceVersion") or ""), nominated_node(pod))


def placement_patch(uid: str, pod: Grouped, placed: Placed) -> JsonObject:
    """Return the merge patch that writes a pod's place. UID and `resourceVersion` are preconditions (kubernetes/kubernetes#86320)."""
    annotations = {PLACEMENT: placement_annotation.written(placed)}
    return {"metadata": {"uid": uid, "resourceVersion": pod.version, "annotations": annotations}}


def level(places: Iterable[Placed], keys: Iterable[str]) -> str:
    """Return the label whose one value all places have; of several, the first of `keys`, which has the smallest domains. Empty if there is none."""
    domains = [set(placed.domain) for placed in places]
    common = dict(set.intersection(*domains)) if domains else {}
    return next((key for key in keys if key in common), "")


def pod_group(wanted: PodGroup) -> JsonObject:
    """Return the object.

    It is disrupted as a whole, because a training job of which one pod is gone does not go on.
    """
    policy: JsonObject = {"gang": {"minCount": wanted.least}} if wanted.least else {"basic": {}}
    spec: JsonObject = {"schedulingPolicy": policy}
    if wanted.least:
        spec["disruptionMode"] = {"all": {}}
    if wanted.key:
        spec["schedulingConstraints"] = {"topology": [{"key": wanted.key}]}
    if wanted.priority_class:
        spec["priorityClassName"] = wanted.priority_class
    metadata = {
        "name": wanted.about.name,
        "namespace": wanted.about.namespace,
        "labels": _MADE_BY,
        "ownerReferences": [_reference(owner) for owner in wanted.owners],
    }
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": spec}


def is_railnets(existing: JsonObject) -> bool:
    """Return whether Railnet has created a PodGroup."""
    labels = existing["metadata"].get("labels") or {}
    return _MADE_BY.items() <= labels.items()


def why_it_waits(existing: JsonObject) -> str:
    """Return what the scheduler says of a PodGroup that it has not started; empty if it says nothing."""
    for condition in (existing.get("status") or {}).get("conditions") or ():
        if condition.get("type") == _SCHEDULED and condition.get("status") == "False":
            return str(condition.get("message") or condition.get("reason") or "")
    return ""


def _reference(owner: InvolvedObject | OwnerReference) -> JsonObject:
    return {"apiVersion": owner.api_version, "kind": owner.kind, "name": owner.name, "uid": owner.uid}
