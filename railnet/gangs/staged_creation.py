"""The kinds that create their pods in stages: the next pods only when the first ones run, are ready, or are complete.

The gates of a gang open when all members that must start together exist as pods. A gang of one of these kinds would wait for ever: its
later members are created only when earlier ones run. So its gates open earlier, and the room of the others is reserved for a bounded time.
A kind that is not in the table creates all pods by itself.
"""

from collections.abc import Callable
from dataclasses import dataclass

from railnet.apiserver.request import JsonObject
from railnet.objects.owner_reference import OwnerReference


@dataclass(frozen=True, slots=True)
class StagedKind:
    """One row of the table.

    Attributes:
        group, kinds: the API group, and the kinds of it.
        applies: whether the specification of an object has it create its pods in stages.
        why: what the later pods wait for, a clause for an event.
        source: where the operator's source or documentation says so.
    """

    group: str
    kinds: tuple[str, ...]
    applies: Callable[[JsonObject], bool]
    why: str
    source: str


def _has_several_roles(spec: JsonObject) -> bool:
    roles = (roles for key, roles in spec.items() if key.endswith("ReplicaSpecs") and isinstance(roles, dict))
    return any(len(role_specs) > 1 for role_specs in roles)


def _is_ordered(spec: JsonObject) -> bool:
    return bool(spec.get("podManagementPolicy", "OrderedReady") == "OrderedReady")


def _starts_leader_first(spec: JsonObject) -> bool:
    return bool(spec.get("startupPolicy") == "LeaderReady")


def _starts_launcher_last(spec: JsonObject) -> bool:
    return bool(spec.get("launcherCreationPolicy") == "WaitForWorkersReady")


def _starts_in_order(spec: JsonObject) -> bool:
    policy = spec.get("startupPolicy")
    return bool(isinstance(policy, dict) and policy.get("startupPolicyOrder") == "InOrder")


def _has_dependencies(spec: JsonObject) -> bool:
    jobs = spec.get("replicatedJobs")
    return isinstance(jobs, list) and any(isinstance(job, dict) and job.get("dependsOn") for job in jobs)


STAGED_KINDS = (
    StagedKind(
        group="apps",
        kinds=("StatefulSet",),
        applies=_is_ordered,
        why="a StatefulSet with podManagementPolicy OrderedReady creates a pod when the one before it is ready",
        source="kubernetes/kubernetes, pkg/controller/statefulset/stateful_set_control.go",
    ),
    StagedKind(
        group="leaderworkerset.x-k8s.io",
        kinds=("LeaderWorkerSet",),
        applies=_starts_leader_first,
        why="a LeaderWorkerSet with startupPolicy LeaderReady creates workers when their leader is ready",
        source="kubernetes-sigs/lws, pkg/controllers/pod_controller.go, and KEP-135",
    ),
    StagedKind(
        group="jobset.x-k8s.io",
        kinds=("JobSet",),
        applies=_starts_in_order,
        why="a JobSet with startupPolicyOrder InOrder creates a job when the one before it is ready",
        source="kubernetes-sigs/jobset, pkg/controllers/startup_policy.go",
    ),
    StagedKind(
        group="jobset.x-k8s.io",
        kinds=("JobSet",),
        applies=_has_dependencies,
        why="a JobSet with dependsOn creates a job when the one that it depends on is ready or complete",
        source="kubernetes-sigs/jobset, pkg/controllers/depends_on.go, and KEP-672; Trainer v2 writes it for its initializers",
    ),
    StagedKind(
        group="kubeflow.org",
        kinds=("MPIJob",),
        applies=_starts_launcher_last,
        why="an MPIJob with launcherCreationPolicy WaitForWorkersReady creates its launcher when all workers are ready",
        source="kubeflow/mpi-operator, pkg/apis/kubeflow/v2beta1/types.go",
    ),
    StagedKind(
        group="training.kubedl.io",
        kinds=("TFJob", "PyTorchJob", "MPIJob", "XGBoostJob", "MarsJob"),
        applies=_has_several_roles,
        why="KubeDL creates the pods of one role when those of another run (its feature gate DAGScheduling, on by default)",
        source="kubedl-io/kubedl, apis/training/v1alpha1/*_defaults.go and pkg/features/features.go",
    ),
)


def creation_stages(owner: OwnerReference, json_object: JsonObject) -> str:
    """Return what the later pods of an object wait for, as a clause; empty if it creates all of its pods by itself."""
    group, spec = owner.api_version.rpartition("/")[0], json_object.get("spec")
    if not isinstance(spec, dict):
        return ""
    rows = (row for row in STAGED_KINDS if row.group == group and owner.kind in row.kinds)
    return next((row.why for row in rows if row.applies(spec)), "")
