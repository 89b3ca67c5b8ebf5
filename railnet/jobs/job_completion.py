"""The end of the object that a training job began with, read from its status: of any operator's kind, or of Kubernetes' own Job.

Sources: kubeflow/training-operator v1.9.0, pkg/apis/kubeflow.org/v1/common_types.go (JobConditionType); kubedl-io/kubedl b93a2b4,
pkg/job_controller/api/v1/types.go (JobConditionType); kubernetes batch/v1 (Job); kubernetes-sigs/jobset, api/jobset/v1alpha2
(JobSetConditionType); volcano-sh/apis, pkg/apis/batch/v1alpha1 (JobPhase); ray-project/kuberay, apis/ray/v1 (JobDeploymentStatus).
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from railnet.objects.conditions import conditions
from railnet.objects.times import moment

_SUCCEEDED = frozenset({"Succeeded", "Complete", "Completed"})
_FAILED = frozenset({"Failed"})
_PHASE_FAILED = _FAILED | {"Terminated"}  # Volcano; a job that is `Aborted` may be resumed


class JobEnd(NamedTuple):
    """A job's end. `at` is in seconds since 1970; None if the status does not say it."""

    succeeded: bool
    at: float | None


def ended(document: Mapping[str, Any]) -> JobEnd | None:
    """Return an object's end; None if it goes on, or its kind has no end."""
    status = document.get("status") or {}
    at = moment(status.get("completionTime") or status.get("endTime"))
    for condition in conditions(document):
        if condition.is_true and condition.kind in _SUCCEEDED | _FAILED:
            return JobEnd(condition.kind in _SUCCEEDED, condition.since if at is None else at)
    state = status.get("state")
    phase = status.get("jobDeploymentStatus") or (state.get("phase") if isinstance(state, dict) else None)
    if phase in _SUCCEEDED:
        return JobEnd(succeeded=True, at=at)
    return JobEnd(succeeded=False, at=at) if phase in _PHASE_FAILED else None


def replicas(document: Mapping[str, Any]) -> dict[str, int]:
    """Return how many pods each role has, as `spec.tfReplicaSpecs` and its like say; roles in lower case, as in the pods' labels."""
    counts = {}
    for key, specs in (document.get("spec") or {}).items():
        if key.endswith("ReplicaSpecs") and isinstance(specs, dict):
            for role, spec in specs.items():
                number = (spec or {}).get("replicas")
                counts[role.lower()] = 1 if number is None else int(number)
    return counts


def removes_pods(document: Mapping[str, Any]) -> bool:
    """Return whether the object says that its operator deletes the pods at its end: `cleanPodPolicy` is `Running` or `All`."""
    spec = document.get("spec") or {}
    policy = (spec.get("runPolicy") or {}).get("cleanPodPolicy") or spec.get("cleanPodPolicy")
    return policy in ("Running", "All")
