"""The two engines that start a gang: Railnet's scheduling gates, and a PodGroup of Kubernetes (`scheduling.k8s.io/v1beta1`).

The engine belongs to the pod: a pod waits behind the gate, or it names a PodGroup. The webhook chooses it when the pod is created, and neither
can be added later. The controllers serve both at any time, so a change of the engine touches no pod that exists.
"""

import hashlib
import re
from collections.abc import Mapping
from typing import Any

from railnet.jobs.gang.request import GangRequest

SCHEDULING_GROUP, POD_GROUP_NAME = "schedulingGroup", "podGroupName"  # core/v1, PodSpec and PodSchedulingGroup
_OTHERS = re.compile(r"[^a-z0-9]+")
_MOST_WORDS = 200  # of the 253 characters of a name
_DIGITS = 8


def pod_group_name(gang: str) -> str:
    """Return the name of the PodGroup of a gang.

    The names of gangs have letters and characters that names of objects have not. The digits keep two gangs apart, and Railnet's PodGroups from
    those of others.
    """
    words = _OTHERS.sub("-", gang.lower()).strip("-")[:_MOST_WORDS].strip("-")
    digits = hashlib.sha256(gang.encode()).hexdigest()[:_DIGITS]
    return "-".join(filter(None, ("gang", words, digits)))


def named_pod_group(spec: Mapping[str, Any]) -> str:
    """Return the PodGroup that a pod names; empty if it names none."""
    group = spec.get(SCHEDULING_GROUP)
    name = group.get(POD_GROUP_NAME) if isinstance(group, dict) else None
    return name if isinstance(name, str) else ""


def why_not_a_pod_group(request: GangRequest, spec: Mapping[str, Any]) -> str:
    """Return why a gang cannot be started by a PodGroup, a clause; empty if it can.

    It is the same for all pods of a gang whose specifications are alike. If they differ, the gang has pods of both engines.
    """
    constraint = request.constraint
    if constraint is not None and len(constraint.required) > 1:
        return "its constraint requires several topologies, and a PodGroup has one"
    if constraint is not None and constraint.required and constraint.preferred:
        return "its constraint requires a topology and prefers another, and a PodGroup has one"
    claims = spec.get("resourceClaims")
    entries = claims if isinstance(claims, list) else []
    if any(isinstance(entry, dict) and entry.get("resourceClaimTemplateName") for entry in entries):
        return "it asks for claims of a template, which Kubernetes makes for pods of a PodGroup only when the PodGroup exists"
    if spec.get("evictionResponders"):
        return "it has spec.evictionResponders, which Kubernetes does not permit in a PodGroup"
    return ""
