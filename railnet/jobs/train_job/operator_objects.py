"""A job of `railnet train` as the object of an operator of training jobs, which then makes pods, names and restarts in its own way.

Sources: kubeflow/training-operator v1.9 (pkg/apis/kubeflow.org/v1/pytorch_types.go), kubernetes-sigs/jobset v0.10 (api/jobset/v1alpha2/jobset_types.go),
kubeflow/mpi-operator v0.8 (pkg/apis/kubeflow/v2beta1/types.go), kubeflow/trainer v2.0 to v2.3 (pkg/apis/trainer/v1alpha1/*_types.go).
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import NamedTuple

from railnet.errors import Misconfigured
from railnet.jobs import railnet_labels
from railnet.jobs.train_job.mpi_objects import check_mpi
from railnet.jobs.train_job.objects import JsonObject, container_of, pod_metadata, pod_spec
from railnet.jobs.train_job.train_job import LONGEST_NAME, WORKER, Kind, TrainingJob

_INDEX = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
_JOBSET_RESTARTS = 3  # of the whole job, where the file says nothing: JobSet's own default is none
_CLEAN_UP = "None"  # pods stay after the end, so that their logs can be read
_PYTORCH_PORT_NAME = "pytorchjob-port"  # by which the operator finds MASTER_PORT; without such a port it is 23456
_TRAINER = "trainer.kubeflow.org"
# kubeflow/trainer, pkg/constants/constants.go: the Job that trains has this label, and both the Job and its container have this name.
_NODE, _STEP = "node", {f"{_TRAINER}/trainjob-ancestor-step": "trainer"}
_REPLICATED = {"jobset": WORKER, "trainjob": _NODE}  # the replicated job of what is a JobSet, or becomes one
_POD_SUFFIX = "-abcde"  # as JobSet's webhook has it: what the Job controller adds to a pod's name


class OperatorObject(NamedTuple):
    """The object of an operator.

    Attributes:
        job_kind: the kind of jobs that it can run.
        operator: what has to be installed.
        specification: makes the object's `spec`.
        runtime: makes the `spec` of the TrainingRuntime of the same name, to which the object refers; None for an object that says all itself.
    """

    api_version: str
    kind: str
    resource: str
    job_kind: Kind
    operator: str
    specification: Callable[[TrainingJob], JsonObject]
    runtime: Callable[[TrainingJob], JsonObject] | None = None


RUNTIME, RUNTIMES = "TrainingRuntime", "trainingruntimes"


def objects_as(job: TrainingJob, name: str) -> list[JsonObject]:
    """Return a job as the object of this name in `OPERATOR_OBJECTS`, behind the object to which it refers, if there is one."""
    wanted = OPERATOR_OBJECTS[name]
    operator_object = _object(job, wanted.api_version, wanted.kind, wanted.specification(job))
    if wanted.runtime is None:
        return [operator_object]
    return [_object(job, wanted.api_version, RUNTIME, wanted.runtime(job)), operator_object]


def refers_to_runtime(manifest: JsonObject) -> bool:
    """Return whether an object is of no use before the cluster has the one that stands before it in `objects_as`."""
    return any(wanted.runtime is not None and manifest["kind"] == wanted.kind for wanted in OPERATOR_OBJECTS.values())


def _object(job: TrainingJob, api_version: str, kind: str, specification: JsonObject) -> JsonObject:
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {
            "name": job.name,
            "namespace": job.in_namespace,
            "labels": {railnet_labels.TRAIN: job.name},
        },
        "spec": specification,
    }


def check_as(job: TrainingJob, name: str | None, keys: Collection[object] = ()) -> None:
    """Check that a job can be the object of this name, or plain Jobs if it is None; `keys` are those of its file.

    Raises:
        Misconfigured: it cannot; the message begins with a key of the file.
    """
    if name is None:
        if job.kind == Kind.MPI:
            check_mpi(job)
        return
    wanted = OPERATOR_OBJECTS[name]
    if job.kind != wanted.job_kind:
        raise Misconfigured(
            f"kind is {job.kind}, and --as {name} is for kind: {wanted.job_kind}; change kind, or choose another --as"
        )
    if job.rendezvous == "net1":
        raise Misconfigured(
            f"rendezvous is net1, and the pods of a {wanted.kind} meet by the operator's names on eth0 (their data go over net1 all the same); "
            "remove rendezvous"
        )
    if name not in _REPLICATED:
        return
    # JobSet's webhook (pkg/webhooks/jobset_webhook.go, longestPodName) refuses the JobSet otherwise; that of a TrainJob is made later, by Trainer.
    longest = f"{job.name}-{_REPLICATED[name]}-0-{job.workers - 1}{_POD_SUFFIX}"
    if len(longest) > LONGEST_NAME:
        raise Misconfigured(
            f"name is {job.name!r}, so the name of a pod of the {wanted.kind} has {len(longest)} characters; it may have {LONGEST_NAME}: shorten name"
        )
    if "restart" in keys:
        raise Misconfigured(
            f"restart is {job.restart}, and a {wanted.kind} starts the whole job again, in new pods, when a worker fails, as often as retries says; "
            "remove restart"
        )


def pods_as(job: TrainingJob) -> int:
    """Return how many pods an operator makes of a job."""
    return job.workers + (job.kind == Kind.MPI)


def _pytorch_job(job: TrainingJob) -> JsonObject:
    template = _template(job, "pytorch", {})
    template["spec"]["containers"][0]["ports"] = [{"name": _PYTORCH_PORT_NAME, "containerPort": job.port}]
    roles = {"Master": 1, "Worker": job.workers - 1}
    retries = {} if job.retries is None else {"backoffLimit": job.retries}
    return {
        "nprocPerNode": str(job.processes_each),
        "runPolicy": {"cleanPodPolicy": _CLEAN_UP, **retries},
        "pytorchReplicaSpecs": {
            role: {"replicas": replicas, "restartPolicy": job.restart, "template": template}
            for role, replicas in roles.items()
            if replicas
        },
    }


def _job_set(job: TrainingJob) -> JsonObject:
    return _set_of(job, WORKER)


def _set_of(job: TrainingJob, name: str, labels: Mapping[str, str] | None = None) -> JsonObject:
    """Return a JobSet's specification: it starts the whole job again when a worker fails, so torchrun's rendezvous is a fixed one.

    Args:
        job: the job.
        name: of the one replicated job, and of its container.
        labels: of the Job that is made of it.
    """
    template = {**({"metadata": {"labels": dict(labels)}} if labels else {}), "spec": _indexed_job(job, name)}
    return {
        "failurePolicy": {"maxRestarts": _JOBSET_RESTARTS if job.retries is None else job.retries},
        "replicatedJobs": [{"name": name, "replicas": 1, "template": template}],
    }


def _train_job(job: TrainingJob) -> JsonObject:
    """Return a TrainJob's specification, which is its runtime alone: what a TrainJob may say of pods has other fields in each version of Trainer.

    They are podSpecOverrides in v2.0, podTemplateOverrides in v2.1, runtimePatches from v2.2 on.
    """
    return {"runtimeRef": {"apiGroup": _TRAINER, "kind": RUNTIME, "name": job.name}}


def _runtime(job: TrainingJob) -> JsonObject:
    """Return the specification of a TrainingRuntime of one job. It has no framework's policy, so that Trainer changes no variable of the file."""
    return {"mlPolicy": {"numNodes": job.workers}, "template": {"spec": _set_of(job, _NODE, _STEP)}}


def _indexed_job(job: TrainingJob, name: str) -> JsonObject:
    template = _template(job, name, dict(_of_job_set(job, name)))
    template["spec"]["restartPolicy"] = "Never"
    return {
        "completionMode": "Indexed",
        "completions": job.workers,
        "parallelism": job.workers,
        "backoffLimit": 0,
        "template": template,
    }


def _of_job_set(job: TrainingJob, replicated: str) -> Iterator[tuple[str, str | None]]:
    """Yield variables; None for the worker's index, which its pod has as an annotation."""
    host = f"{job.name}-{replicated}-0-0.{job.name}"
    yield "PET_NNODES", str(job.workers)
    yield "PET_NPROC_PER_NODE", str(job.processes_each)
    yield "PET_NODE_RANK", None
    yield "PET_MASTER_ADDR", host
    yield "PET_MASTER_PORT", str(job.port)
    yield "MASTER_ADDR", host
    yield "MASTER_PORT", str(job.port)
    yield "WORLD_SIZE", str(job.workers * job.processes_each)
    if job.processes_each == 1:
        yield "RANK", None
        yield "LOCAL_RANK", "0"


def _mpi_job(job: TrainingJob) -> JsonObject:
    worker, launcher = _template(job, "mpi", {}), _template(job, "mpi", {}, launches=True)
    worker["spec"]["containers"][0].pop("command", None)  # the operator runs sshd
    retries = {} if job.retries is None else {"backoffLimit": job.retries}
    return {
        "slotsPerWorker": job.processes_each,
        "launcherCreationPolicy": "WaitForWorkersReady",
        "runPolicy": {"cleanPodPolicy": "Running", **retries},
        "mpiReplicaSpecs": {
            "Launcher": {"replicas": 1, "template": launcher},
            "Worker": {"replicas": job.workers, "template": worker},
        },
    }


def _template(
    job: TrainingJob, container_name: str, variables: Mapping[str, str | None], *, launches: bool = False
) -> JsonObject:
    """Return the pod template of a worker, or of a launcher, which has neither GPUs nor rails. The file's variables have precedence."""
    container = container_of(job, container_name, gpus=not launches)
    known = [
        {"name": name, "valueFrom": {"fieldRef": {"fieldPath": _INDEX}}}
        if text is None
        else {"name": name, "value": text}
        for name, text in variables.items()
        if name not in job.env
    ]
    container["env"] = [*known, *({"name": name, "value": text} for name, text in job.env.items())]
    labels = {railnet_labels.TRAIN: job.name}
    metadata = pod_metadata(job, labels, pods_as(job), rails=not launches)
    return {"metadata": metadata, "spec": {**pod_spec(job, job.restart), "containers": [container]}}


OPERATOR_OBJECTS: Mapping[str, OperatorObject] = {
    "pytorchjob": OperatorObject(
        api_version="kubeflow.org/v1",
        kind="PyTorchJob",
        resource="pytorchjobs",
        job_kind=Kind.PYTORCH,
        operator="the Kubeflow training-operator (v1)",
        specification=_pytorch_job,
    ),
    "jobset": OperatorObject(
        api_version="jobset.x-k8s.io/v1alpha2",
        kind="JobSet",
        resource="jobsets",
        job_kind=Kind.PYTORCH,
        operator="JobSet",
        specification=_job_set,
    ),
    "trainjob": OperatorObject(
        api_version=f"{_TRAINER}/v1alpha1",
        kind="TrainJob",
        resource="trainjobs",
        job_kind=Kind.PYTORCH,
        operator="Kubeflow Trainer (v2)",
        specification=_train_job,
        runtime=_runtime,
    ),
    "mpijob": OperatorObject(
        api_version="kubeflow.org/v2beta1",
        kind="MPIJob",
        resource="mpijobs",
        job_kind=Kind.MPI,
        operator="mpi-operator (v2)",
        specification=_mpi_job,
    ),
}
