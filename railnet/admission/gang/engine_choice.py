"""The engine for new pods of gangs, from what the administrator wants and what the API server serves. Pure.

Kubernetes leaves out the fields of a feature gate that is off, and says nothing. So the API server is asked what it would store of a PodGroup.
`GenericWorkload` serves PodGroups and keeps `spec.schedulingGroup` of pods alike (kubernetes 1.37.2, pkg/registry/scheduling/rest and
pkg/api/pod). Whether the scheduler has the same gates, no API says.
"""

from collections.abc import Mapping
from enum import Enum, StrEnum
from typing import Any, NamedTuple

_REMEDY = (
    "enable the feature gates GenericWorkload and TopologyAwareWorkloadScheduling on kube-apiserver, kube-controller-manager and kube-scheduler, "
    "and set --runtime-config=scheduling.k8s.io/v1beta1=true of kube-apiserver"
)


class GangEngine(StrEnum):
    """The engine that the administrator wants."""

    AUTO = "auto"  # Kubernetes' where the API server has all of it
    KUBERNETES = "kubernetes"
    GATES = "gates"


class ChosenEngine(NamedTuple):
    """The engine for new pods.

    Attributes:
        groups: whether pods name a PodGroup; otherwise they get the gate.
        doubt: why it is not the engine that the administrator wants, a sentence; empty if it is.
    """

    groups: bool = False
    doubt: str = ""


GATES = ChosenEngine()


class Served(Enum):
    """What the API server has of PodGroups, in words."""

    ALL = "the API server serves PodGroups"
    NO_TOPOLOGY = "the API server keeps no topology of a PodGroup"
    NONE = "the API server serves no PodGroups of scheduling.k8s.io/v1beta1"


def served(answer: Mapping[str, Any] | None) -> Served:
    """Return what the API server has, from what it would store of a PodGroup with a topology; None if it serves no PodGroups."""
    if answer is None:
        return Served.NONE
    spec = answer.get("spec") or {}
    return Served.ALL if (spec.get("schedulingConstraints") or {}).get("topology") else Served.NO_TOPOLOGY


def chosen(wanted: GangEngine, has: Served | None) -> ChosenEngine:
    """Return the engine for new pods; `has` is None as long as the API server has not answered.

    No pod is left without a place: where Kubernetes' engine is wanted and cannot be used, pods wait behind the gate, and their creator is
    warned.
    """
    if wanted is GangEngine.GATES:
        return GATES
    if has is Served.ALL:
        return ChosenEngine(groups=True)
    if wanted is GangEngine.AUTO:
        return GATES
    why = "the API server has not answered yet" if has is None else has.value
    return ChosenEngine(
        doubt=f"gangs.engine is kubernetes, but {why}, so the pod waits behind a gate; docs/training/gangs.md, Engines"
    )


def said(wanted: GangEngine, has: Served) -> str:
    """Return what the log says: the engine, why, and what to do for the other one."""
    if has is Served.ALL:
        return f"{has.value}: new pods of gangs wait for them"
    return f"{has.value}: new pods of gangs wait behind a gate{'' if wanted is GangEngine.AUTO else f'. For PodGroups {_REMEDY}'}"
