"""A training job's objects, as the plain templates of TensorFlow on Kubernetes have them: a task is a Job or a Deployment, and a Service.

Each worker is a Job whose containers start again when they fail, and not when they are done. Each parameter server is a Deployment of one
pod. Each task has a headless Service of its name, so that the name leads to the pod's address and no rule of kube-proxy is made. If the
names are on net1, an annotation asks `railnet controllers` for these Services, because only they know the addresses.
All objects belong to a ConfigMap that contains the job's file: when it is deleted, they are.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from railnet.errors import Misconfigured
from railnet.jobs import railnet_labels
from railnet.jobs.gang_constraint import CONSTRAINT
from railnet.jobs.gang_recogniser import SPELLINGS

JsonObject = dict[str, Any]

PS, WORKER = "ps", "worker"
GANG = SPELLINGS[0]  # the article's labels
FILE = "job.yaml"  # the key of the ConfigMap
COMPLETE = "railnet.io/train-complete"  # annotation of the ConfigMap: all objects have been created once
_TASK = "task"  # the value of the annotation `railnet_labels.NAMES`
_VF = "railnet.io/vf"
_PORT = 2222
_LONGEST_NAME = 63  # RFC 1035 label: a Service has the task's name, and the pods' label has the job's
_LONGEST_ARGUMENT = 32 << 12  # execve(2): MAX_ARG_STRLEN, for one argument or variable with its final NUL


@dataclass(frozen=True, slots=True)
class TrainingJob:
    """A job, as its file says it.

    Attributes:
        namespace: the job's name, if the file does not say another.
        command: the program and its first arguments; empty for the image's own.
        script: text for /bin/sh in place of a command; None for none.
        gpus: for each worker. Parameter servers get none.
        cpu, memory: requests of each task. The memory is the limit as well, so that a task that needs more ends alone.
        rails: how many VFs each task gets; 0 for none.
        rendezvous: the interface that the names of the tasks lead to, `net1` or `eth0`; None for net1 if there are rails.
        priority: the name of a PriorityClass; None for the cluster's default.
        annotations: of all pods, and of the owner: what Railnet's other parts do for this job.
        gang: whether all tasks start together or none does; None if `topology` decides it.
        topology: the key of a node's label whose value is the same for all tasks, which are a gang then; None for any nodes.
        volumes: paths in the containers by names of PersistentVolumeClaims.
        retries: how often a failed worker is started again; None for Kubernetes' default.
    """

    name: str
    image: str
    workers: int
    ps: int = 0
    namespace: str | None = None
    command: tuple[str, ...] = ()
    script: str | None = None
    gpus: int = 0
    gpu_resource: str = "nvidia.com/gpu"
    cpu: str = "500m"
    memory: str = "4Gi"
    rails: int = 1
    rendezvous: str | None = None
    priority: str | None = None
    image_pull_secrets: tuple[str, ...] = ()
    volumes: Mapping[str, str] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    port: int = _PORT
    retries: int | None = None
    gang: bool | None = None
    topology: str | None = None

    def __post_init__(self) -> None:
        """Check what follows from several values.

        Raises:
            Misconfigured: two values contradict each other, or a name is too long; the message names the keys.
        """
        if self.command and self.script is not None:
            raise Misconfigured("command and script exclude each other; remove one of them")
        if self.rendezvous == "net1" and not self.rails:
            raise Misconfigured(
                "rendezvous is net1, and rails is 0: without a rail a task has no net1; change one of them"
            )
        if self.topology is not None and CONSTRAINT in self.annotations:
            raise Misconfigured(f"topology and the annotation {CONSTRAINT} exclude each other; remove one of them")
        if self.topology is not None and self.gang is False:
            raise Misconfigured("gang is false, and the tasks of a topology are a gang; remove one of the two keys")
        longest = max((len(task.name) for task in self.tasks), default=0)
        if longest > _LONGEST_NAME:
            raise Misconfigured(
                f"name is {self.name!r}, so a task's name has {longest} characters; it may have {_LONGEST_NAME}: shorten name"
            )
        if self.script is not None and len(self.script.encode()) >= _LONGEST_ARGUMENT:
            raise Misconfigured(f"script has more than {_LONGEST_ARGUMENT - 1} bytes; put it into the image")
        last = Task(self, WORKER, self.workers - 1)
        size = len(_tf_config(last, ClusterSpec.of(self))) + len("TF_CONFIG=") + 1
        if size > _LONGEST_ARGUMENT:
            raise Misconfigured(
                f"workers and ps make a TF_CONFIG of {size} bytes, and Linux starts no program with a variable of more than "
                f"{_LONGEST_ARGUMENT}; use fewer and larger tasks"
            )

    @property
    def in_namespace(self) -> str:
        """The namespace of all objects."""
        return self.namespace or self.name

    @property
    def on_net1(self) -> bool:
        """True if tasks find each other by names on net1."""
        return bool(self.rails) and self.rendezvous != "eth0"

    @property
    def in_gang(self) -> bool:
        """True if its tasks are one gang."""
        return bool(self.gang) or self.topology is not None

    @property
    def tasks(self) -> Iterator["Task"]:
        """The parameter servers, then the workers."""
        yield from (Task(self, PS, index) for index in range(self.ps))
        yield from (Task(self, WORKER, index) for index in range(self.workers))


@dataclass(frozen=True, slots=True)
class Task:
    """One task of a job."""

    job: TrainingJob
    role: str
    index: int

    @property
    def name(self) -> str:
        """The name of its objects and of its container: the recogniser knows the task by it."""
        return f"{self.job.name}-{self.role}-{self.index}"

    @property
    def labels(self) -> dict[str, str]:
        """The templates' labels."""
        return {"name": self.job.name, "job": self.role, "task": str(self.index)}


class ClusterSpec(NamedTuple):
    """The addresses of all tasks, each with its port."""

    ps: list[str]
    workers: list[str]

    @classmethod
    def of(cls, job: TrainingJob) -> "ClusterSpec":
        """Return a job's addresses: the names of the tasks' Services."""
        addresses: dict[str, list[str]] = {PS: [], WORKER: []}
        for task in job.tasks:
            addresses[task.role].append(f"{task.name}.{job.in_namespace}.svc:{job.port}")
        return cls(addresses[PS], addresses[WORKER])


def owner(job: TrainingJob, text: str) -> JsonObject:
    """Return the object to which all others belong; `text` is the job's file."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": job.name,
            "namespace": job.in_namespace,
            "labels": {railnet_labels.TRAIN: job.name},
            **({"annotations": dict(job.annotations)} if job.annotations else {}),
        },
        "data": {FILE: text},
    }


def objects(job: TrainingJob) -> Iterator[JsonObject]:
    """Yield all objects but the owner: the names on eth0, then the parameter servers, then the workers, which need both."""
    spec = ClusterSpec.of(job)
    if not job.on_net1:
        yield from (_service(task) for task in job.tasks)
    for task in job.tasks:
        yield _deployment(task, spec) if task.role == PS else _worker_job(task, spec)


def owned(manifest: JsonObject, uid: str) -> JsonObject:
    """Return an object that belongs to the owner with this UID."""
    reference = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": manifest["metadata"]["labels"][railnet_labels.TRAIN],
        "uid": uid,
        "controller": True,  # so that the job's root is one object for all tasks (`railnet.controllers.owners`)
    }
    return {**manifest, "metadata": {**manifest["metadata"], "ownerReferences": [reference]}}


def _metadata(task: Task) -> JsonObject:
    return {
        "name": task.name,
        "namespace": task.job.in_namespace,
        "labels": {**task.labels, railnet_labels.TRAIN: task.job.name},
    }


def _service(task: Task) -> JsonObject:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(task),
        "spec": {
            "clusterIP": "None",
            # A task that starts has to find the others before they are ready.
            "publishNotReadyAddresses": True,
            "selector": task.labels,
            "ports": [{"name": "tf", "port": task.job.port, "targetPort": task.job.port}],
        },
    }


def _deployment(task: Task, cluster: ClusterSpec) -> JsonObject:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": _metadata(task),
        "spec": {
            "replicas": 1,
            "strategy": {"type": "Recreate"},  # never two pods of one task
            "selector": {"matchLabels": task.labels},
            "template": _template(task, cluster, "Always"),
        },
    }


def _worker_job(task: Task, cluster: ClusterSpec) -> JsonObject:
    retries = {} if task.job.retries is None else {"backoffLimit": task.job.retries}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": _metadata(task),
        "spec": {**retries, "template": _template(task, cluster, "OnFailure")},
    }


def _template(task: Task, cluster: ClusterSpec, restarts: str) -> JsonObject:
    job = task.job
    metadata: JsonObject = {"labels": {**task.labels, railnet_labels.TRAIN: job.name}}
    annotations = dict(job.annotations)
    _join_gang(job, metadata["labels"], annotations)
    if job.rails:
        metadata["labels"][railnet_labels.NET1] = "true"
        annotations[_VF] = str(job.rails)
    if job.on_net1:
        annotations[railnet_labels.NAMES] = _TASK
    if annotations:
        metadata["annotations"] = annotations
    spec: JsonObject = {"restartPolicy": restarts, "containers": [_container(task, cluster)]}
    if job.image_pull_secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in job.image_pull_secrets]
    if job.priority:
        spec["priorityClassName"] = job.priority
    if job.volumes:
        spec["volumes"] = [
            {"name": f"claim-{number}", "persistentVolumeClaim": {"claimName": name}}
            for number, name in enumerate(job.volumes)
        ]
    return {"metadata": metadata, "spec": spec}


def _join_gang(job: TrainingJob, labels: dict[str, str], annotations: dict[str, str]) -> None:
    """Add to a pod's labels and annotations what makes it a member of its job's gang."""
    if job.in_gang:
        labels |= {GANG.name: job.name, GANG.least: str(job.ps + job.workers)}
    if job.topology is not None:
        constraint = {"required": {"topologies": [{"key": job.topology}]}}
        annotations[CONSTRAINT] = json.dumps(constraint, separators=(",", ":"))


def _container(task: Task, cluster: ClusterSpec) -> JsonObject:
    job = task.job
    command = ["/bin/sh", "-c", job.script, task.name] if job.script is not None else list(job.command)
    gpus = {job.gpu_resource: str(job.gpus)} if job.gpus and task.role == WORKER else {}
    container: JsonObject = {
        "name": task.name,
        "image": job.image,
        "args": [
            ",".join(cluster.ps),
            ",".join(cluster.workers),
            task.role,
            str(task.index),
            str(job.ps),
            str(job.workers),
        ],
        "env": [
            *({"name": name, "value": value} for name, value in job.env.items()),
            {"name": "TF_CONFIG", "value": _tf_config(task, cluster)},
        ],
        "ports": [{"name": "tf", "containerPort": job.port}],
        "resources": {
            "requests": {"cpu": job.cpu, "memory": job.memory, **gpus},
            "limits": {"memory": job.memory, **gpus},
        },
    }
    if command:
        container["command"] = command
    if job.volumes:
        container["volumeMounts"] = [
            {"name": f"claim-{number}", "mountPath": path} for number, path in enumerate(job.volumes.values())
        ]
    return container


def _tf_config(task: Task, cluster: ClusterSpec) -> str:
    roles = {PS: cluster.ps, WORKER: cluster.workers}
    document = {
        "cluster": {role: addresses for role, addresses in roles.items() if addresses},
        "task": {"type": task.role, "index": task.index},
        "environment": "cloud",
    }
    return json.dumps(document, separators=(",", ":"))
