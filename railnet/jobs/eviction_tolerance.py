"""The table of kinds whose objects make pods: what an eviction does to the object, and what Railnet does, so that a move never costs a job.

A pod's chain is its controller, that one's controller, and so on up to the root. The controller of the pod must have a row that permits the
eviction, and no row of an object above it may refuse it. A kind above without a row has no part in it: it sees no pods.

docs/training/gangs.md shows the table.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from railnet.jobs import pod_failure_policy
from railnet.objects.owner_reference import OwnerReference

JsonObject = dict[str, Any]

_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 10.0, 600.0
_JOB = ("batch", "Job")
_RESTARTED = frozenset({"OnFailure", "Always"})
_HARMLESS_ACTIONS = frozenset({"RestartTask", "RestartPod", "SyncJob"})
_EVICTION_EVENTS = frozenset({"*", "PodEvicted"})


class Refusal(NamedTuple):
    """The reason why no pod of an object is evicted.

    Attributes:
        why: a clause whose subject is the object.
        remedy: what its author should do, a clause in the imperative.
    """

    why: str
    remedy: str


class Tolerance(NamedTuple):
    """What an eviction of its pods means for an object and those above it.

    Attributes:
        refusal: why they are not evicted; None if they may be.
        pauses: whether the Job controller makes the pods again, which pauses after failures.
        unread: whether an object could not be read, so that another answer is possible later.
    """

    refusal: Refusal | None
    pauses: bool = False
    unread: bool = False


UNREAD = Refusal(
    "cannot be read, so it is not known what an eviction would do to it",
    "grant railnet-controllers the right to get it, or delete the job to have it tried again",
)
_UNKNOWN = Refusal(
    "is of a kind of which Railnet does not know what an eviction does to it",
    "delete the job to have it tried again",
)


@dataclass(frozen=True, slots=True)
class Kinds:
    """One row of the table.

    Attributes:
        group: the API group of the kinds.
        eviction: what happens when pods are evicted, a sentence.
        railnet: what Railnet does, a sentence.
        source: where that stands.
        refusal: from an object of the kind, why its pods are not evicted; the object is None if it cannot be read.
    """

    group: str
    kinds: tuple[str, ...]
    eviction: str
    railnet: str
    source: str
    refusal: Callable[[JsonObject | None], Refusal | None]


def _never_refuses(_: JsonObject | None) -> None:
    return None


def _always(why: str, remedy: str) -> Callable[[JsonObject | None], Refusal | None]:
    return lambda _: Refusal(why, remedy)


def _of_job(document: JsonObject | None) -> Refusal | None:
    if document is None:
        return UNREAD
    spec = _mapping(document.get("spec"))
    why = pod_failure_policy.why_evictions_count(spec)
    remedy = f"create it with restartPolicy: Never and {pod_failure_policy.IN_WORDS} as the first rule"
    return Refusal(why, remedy) if why else None


def _of_kubeflow(default: str) -> Callable[[JsonObject | None], Refusal | None]:
    """Return the rule for a kind of training-operator v1 whose replicas without a restart policy have the default."""

    def refusal(document: JsonObject | None) -> Refusal | None:
        if document is None:
            return UNREAD
        spec = _mapping(document.get("spec"))
        if _mapping(spec.get("runPolicy")).get("backoffLimit") is not None:
            return Refusal("counts evicted pods against runPolicy.backoffLimit", "create it without backoffLimit")
        policies = {
            str(_mapping(replica).get("restartPolicy") or default)
            for key, roles in spec.items()
            if key.endswith("ReplicaSpecs")
            for replica in _mapping(roles).values()
        }
        other = sorted(policies - _RESTARTED)
        if not other and policies:
            return None
        return Refusal(
            f"fails when a pod is evicted that has restartPolicy {(other or ['unknown'])[0]:.20}",
            "create it with restartPolicy: OnFailure in all its replica specs",
        )

    return refusal


def _of_volcano(document: JsonObject | None) -> Refusal | None:
    if document is None:
        return UNREAD
    spec = _mapping(document.get("spec"))
    for holder in (spec, *map(_mapping, _list(spec.get("tasks")))):
        for policy in map(_mapping, _list(holder.get("policies"))):
            events = {str(event) for event in (policy.get("event"), *_list(policy.get("events")))}
            action = str(policy.get("action"))
            if events & _EVICTION_EVENTS and action not in _HARMLESS_ACTIONS:
                return Refusal(
                    f"has a policy that answers an eviction by {action:.30}, which ends it or uses up its maxRetry",
                    "create it without a policy for PodEvicted and *",
                )
    return None


KINDS: tuple[Kinds, ...] = (
    Kinds(
        "batch",
        ("Job",),
        "Each evicted pod counts against backoffLimit, which is 6 by default, and the Job fails for good. A rule of podFailurePolicy prevents "
        "it; it can be set only when the Job is created, with restartPolicy Never. A pod that ends with 0 on SIGTERM counts as complete. New "
        "pods come after a pause of 10 s that doubles with each evicted pod, 10 minutes at most",
        "The webhook gives the rule to a gang's Job that is created without one. A Job without the rule is not evicted",
        "kubernetes 1.37.2, pkg/controller/job; tried",
        _of_job,
    ),
    Kinds(
        "jobset.x-k8s.io",
        ("JobSet",),
        "Its Jobs make the pods, and are as other Jobs. A Job that fails makes the JobSet restart or fail, as its failurePolicy says",
        "As for Job: the webhook sees each Job that JobSet creates",
        "kubernetes-sigs/jobset, pkg/controllers/failure_policy.go; tried",
        _never_refuses,
    ),
    Kinds(
        "trainer.kubeflow.org",
        ("TrainJob",),
        "Its JobSet's Jobs make the pods",
        "As for Job",
        "kubeflow/trainer v2",
        _never_refuses,
    ),
    Kinds(
        "leaderworkerset.x-k8s.io",
        ("LeaderWorkerSet",),
        "StatefulSets make the pods again at once. With RecreateGroupOnPodRestart the other pods of the group are made again as well. It never "
        "fails",
        "Evicts",
        "kubernetes-sigs/lws, pkg/controllers/pod_controller.go",
        _never_refuses,
    ),
    Kinds(
        "apps",
        ("StatefulSet", "ReplicaSet", "Deployment"),
        "The pods are made again at once. It never fails",
        "Evicts",
        "kubernetes 1.37.2, pkg/controller; tried with StatefulSets",
        _never_refuses,
    ),
    Kinds(
        "kubeflow.org",
        ("PyTorchJob",),
        "The operator makes the pods itself. With restartPolicy OnFailure, the default here, or Always it makes an evicted pod again, and counts "
        "it against runPolicy.backoffLimit if there is one. With Never the job fails. With ExitCode it fails if the program ends with a code "
        "below 128 on SIGTERM, as torchrun does",
        "Evicts with OnFailure or Always in all roles and no backoffLimit",
        "kubeflow/training-operator v1.9.3, pkg/controller.v1/pytorch/pytorchjob_controller.go; tried",
        _of_kubeflow("OnFailure"),
    ),
    Kinds(
        "kubeflow.org",
        ("PaddleJob", "JAXJob"),
        "As for PyTorchJob, but without a restartPolicy it is taken for Never",
        "Evicts with OnFailure or Always written in all roles and no backoffLimit",
        "kubeflow/training-operator v1.9.3, pkg/controller.v1/paddlepaddle/paddlepaddle_controller.go, pkg/controller.v1/jax/jaxjob_controller.go",
        _of_kubeflow("Never"),
    ),
    Kinds(
        "kubeflow.org",
        ("TFJob", "XGBoostJob"),
        "The job fails as soon as one of its pods has failed, also with restartPolicy OnFailure or Always. Only with ExitCode a pod is made "
        "again, and only if the program ended with a code above 127",
        "Never evicts",
        "kubeflow/training-operator v1.9.3, pkg/controller.v1/tensorflow/tfjob_controller.go, pkg/controller.v1/xgboost/xgboostjob_controller.go; "
        "tried with TFJob",
        _always("fails when one of its pods is evicted", "delete the job to have it tried again"),
    ),
    Kinds(
        "kubeflow.org",
        ("MPIJob",),
        "The operator makes workers again, but mpirun ends with an error when it loses one. The launcher, or its Job, counts that as a failure "
        "of the program, and no policy can tell one from the other",
        "Never evicts",
        "kubeflow/mpi-operator, pkg/controller/mpi_job_controller.go; tried; kubeflow/training-operator v1.9.3, pkg/controller.v1/mpi",
        _always(
            "counts the end of mpirun, which loses its workers, as a failure of the program",
            "delete the job to have it tried again",
        ),
    ),
    Kinds(
        "batch.volcano.sh",
        ("Job",),
        "Without a policy for the event PodEvicted the pods are made again. RestartJob uses up maxRetry, and AbortJob, TerminateJob and "
        "CompleteJob end the job",
        "Evicts without such a policy. Railnet places pods of Volcano only if their schedulerName is default-scheduler",
        "volcano-sh/volcano, pkg/controllers/job/job_controller_handler.go",
        _of_volcano,
    ),
    Kinds(
        "ray.io",
        ("RayCluster", "RayService"),
        "The pods are made again. Ray repeats the tasks of workers; what the head knew is lost without fault tolerance of its GCS. It never fails",
        "Evicts",
        "ray-project/kuberay, ray-operator/controllers/ray/raycluster_controller.go",
        _never_refuses,
    ),
    Kinds(
        "ray.io",
        ("RayJob",),
        "The submitted job ends with the head, and the RayJob fails; its backoffLimit is 0 by default",
        "Never evicts",
        "ray-project/kuberay, issue 3860, ray-operator/controllers/ray/rayjob_controller.go",
        _always("fails when its head is evicted", "delete the job to have it tried again"),
    ),
    Kinds(
        "training.kubedl.io",
        ("TFJob", "PyTorchJob", "MPIJob", "XGBoostJob", "XDLJob", "MarsJob", "ElasticDLJob"),
        "The job fails as soon as one of its pods has failed. Only with restartPolicy ExitCode a pod is made again, and only if the program ended "
        "with 130, 137, 138 or 143",
        "Never evicts",
        "kubedl-io/kubedl b93a2b4, pkg/job_controller/failover.go, controllers/tensorflow/status.go; tried with TFJob",
        _always("fails when one of its pods is evicted", "delete the job to have it tried again"),
    ),
)
_ROWS: Mapping[tuple[str, str], Kinds] = {(row.group, kind): row for row in KINDS for kind in row.kinds}


def tolerance(chain: Iterable[tuple[OwnerReference, JsonObject | None]]) -> Tolerance:
    """Return what the eviction of a pod means for its chain, from its controller to the root; an object is None if it could not be read."""
    pauses = False
    for position, (owner, document) in enumerate(chain):
        key = (owner.api_version.rpartition("/")[0], owner.kind)
        row = _ROWS.get(key)
        if row is None:
            if position == 0:
                return Tolerance(_named(owner, _UNKNOWN))
            continue
        pauses = pauses or (position == 0 and key == _JOB)
        refusal = row.refusal(document)
        if refusal is not None:
            return Tolerance(_named(owner, refusal), pauses, unread=refusal is UNREAD)
    return Tolerance(None, pauses)


def job_pause_seconds(evicted: int) -> float:
    """Return the seconds until the Job controller makes new pods after so many evicted ones, also if it ignores them as failures."""
    if evicted < 1:
        return 0.0
    doubled = min(evicted - 1, 16)  # more makes no difference
    return min(_LONGEST_PAUSE_SECONDS, _FIRST_PAUSE_SECONDS * (1 << doubled))


def _named(owner: OwnerReference, refusal: Refusal) -> Refusal:
    return refusal._replace(why=f"{owner.kind:.63} {owner.name:.63} {refusal.why}")


def _mapping(value: Any) -> JsonObject:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
