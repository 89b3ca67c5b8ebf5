"""The objects of a job of `railnet train`, as the plain templates of TensorFlow on Kubernetes have them: a task is a Job or a Deployment, and a Service.

Each worker is a Job whose containers start again when they fail, and not when they are done. Each parameter server is a Deployment of one
pod. Each task has a headless Service of its name, so that the name leads to the pod's address and no rule of kube-proxy is made. If the
names are on net1, an annotation asks `railnet controllers` for these Services, because only they know the addresses.
All objects belong to a ConfigMap that contains the job's file: when it is deleted, they are.
"""

import json
from collections.abc import Iterator
from typing import Any

from railnet.jobs import railnet_labels
from railnet.jobs.gang.gang_constraint import CONSTRAINT
from railnet.jobs.gang.recogniser import SPELLINGS
from railnet.jobs.train_job.environment import Peers
from railnet.jobs.train_job.train_job import PS, WORKER, Kind, Task, TrainingJob

JsonObject = dict[str, Any]

GANG = SPELLINGS[0]  # the article's labels
FILE = "job.yaml"  # the key of the ConfigMap
AS = "railnet.io/train-as"  # annotation of the ConfigMap: as which operator's object the job was created; absent for plain Jobs
COMPLETE = "railnet.io/train-complete"  # annotation of the ConfigMap: all objects have been created once
_TASK = "task"  # the value of the annotation `railnet_labels.NAMES`
_VF = "railnet.io/vf"
_PORT_NAMES = {Kind.TENSORFLOW: "tf", Kind.PYTORCH: "torch"}
_SHARED_MEMORY = "shared-memory"
_MOUNT_FIELDS = (
    "mountPath",
    "readOnly",
    "subPath",
)  # of a volume in the file; its other fields are the volume's source


def owner(job: TrainingJob, text: str, made_as: str | None = None) -> JsonObject:
    """Return the object to which all others belong; `text` is the job's file, `made_as` the operator's object that it is, if it is one."""
    annotations = {**job.annotations, **({AS: made_as} if made_as else {})}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": job.name,
            "namespace": job.in_namespace,
            "labels": {railnet_labels.TRAIN: job.name},
            **({"annotations": annotations} if annotations else {}),
        },
        "data": {FILE: text},
    }


def objects(job: TrainingJob) -> Iterator[JsonObject]:
    """Yield all objects but the owner: the names on eth0, then the parameter servers, then the workers, which need both."""
    peers = Peers.of(job)
    if not job.on_net1:
        yield from (_service(task) for task in job.tasks)
    for task in job.tasks:
        yield _deployment(task, peers) if task.role == PS else _worker_job(task, peers)


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
            "ports": [{"name": _port_name(task.job), "port": task.job.port, "targetPort": task.job.port}],
        },
    }


def _deployment(task: Task, peers: Peers) -> JsonObject:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": _metadata(task),
        "spec": {
            "replicas": 1,
            "strategy": {"type": "Recreate"},  # never two pods of one task
            "selector": {"matchLabels": task.labels},
            "template": _template(task, peers, "Always"),
        },
    }


def _worker_job(task: Task, peers: Peers) -> JsonObject:
    retries = {} if task.job.retries is None else {"backoffLimit": task.job.retries}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": _metadata(task),
        "spec": {**retries, "template": _template(task, peers, task.job.restart)},
    }


def pod_metadata(job: TrainingJob, labels: dict[str, str], gang_pods: int, *, rails: bool = True) -> JsonObject:
    """Return the metadata of a pod template: these labels, the gang of so many pods, and the request for rails."""
    labels, annotations = dict(labels), dict(job.annotations)
    if job.in_gang:
        labels |= {GANG.name: job.name, GANG.least: str(gang_pods)}
    if job.topology is not None:
        constraint = {"required": {"topologies": [{"key": job.topology}]}}
        annotations[CONSTRAINT] = json.dumps(constraint, separators=(",", ":"))
    if job.rails and rails:
        labels[railnet_labels.NET1] = "true"
        annotations[_VF] = str(job.rails)
    return {"labels": labels, **({"annotations": annotations} if annotations else {})}


def pod_spec(job: TrainingJob, restarts: str) -> JsonObject:
    """Return the specification of a pod, without its containers."""
    optional: JsonObject = {
        "imagePullSecrets": [{"name": name} for name in job.image_pull_secrets],
        "priorityClassName": job.priority,
        "nodeSelector": dict(job.node_selector),
        "tolerations": [dict(toleration) for toleration in job.tolerations],
        "affinity": dict(job.affinity),
        "volumes": [volume for volume, _ in _volumes(job)],
    }
    return {"restartPolicy": restarts, **{key: value for key, value in optional.items() if value}}


def container_of(job: TrainingJob, name: str, *, gpus: bool) -> JsonObject:
    """Return the container of a pod, without its variables and ports."""
    command = ["/bin/sh", "-c", job.script, name] if job.script is not None else list(job.command)
    amounts = {job.gpu_resource: str(job.gpus)} if job.gpus and gpus else {}
    mounts = [mount for _, mount in _volumes(job)]
    return {
        "name": name,
        "image": job.image,
        "resources": {
            "requests": {"cpu": job.cpu, "memory": job.memory, **amounts},
            "limits": {"memory": job.memory, **amounts},
        },
        **({"command": command} if command else {}),
        **({"volumeMounts": mounts} if mounts else {}),
    }


def _template(task: Task, peers: Peers, restarts: str) -> JsonObject:
    job = task.job
    metadata = pod_metadata(job, {**task.labels, railnet_labels.TRAIN: job.name}, job.ps + job.workers)
    annotations = dict(metadata.get("annotations", {}))
    if job.on_net1:
        annotations[railnet_labels.NAMES] = _TASK
    if job.kind != Kind.TENSORFLOW:  # of TensorFlow's pods it is read from TF_CONFIG
        annotations[railnet_labels.SIZE] = str(job.ps + job.workers)
    # torchrun before 2.0 gives the others rank 0's host name, and no PET_LOCAL_ADDR: the name of its Service is found by the namespace's DNS.
    hostname = {"hostname": task.name} if job.kind == Kind.PYTORCH else {}
    spec = {**pod_spec(job, restarts), **hostname, "containers": [_container(task, peers)]}
    return {"metadata": {**metadata, **({"annotations": annotations} if annotations else {})}, "spec": spec}


def _container(task: Task, peers: Peers) -> JsonObject:
    job = task.job
    arguments = peers.arguments(task)
    return {
        **container_of(job, task.name, gpus=task.role == WORKER),
        **({"args": arguments} if arguments else {}),
        "env": [{"name": name, "value": value} for name, value in peers.variables(task).items()],
        "ports": [{"name": _port_name(job), "containerPort": job.port}],
    }


def _volumes(job: TrainingJob) -> Iterator[tuple[JsonObject, JsonObject]]:
    """Yield each volume of a pod, and where its container has it."""
    for number, (name, volume) in enumerate(job.volumes.items()):
        if isinstance(volume, str):
            short = f"claim-{number}"  # a claim's name may be longer than a volume's
            yield (
                {"name": short, "persistentVolumeClaim": {"claimName": name}},
                {"name": short, "mountPath": volume},
            )
        else:
            source = {key: value for key, value in volume.items() if key not in _MOUNT_FIELDS}
            yield (
                {"name": name, **source},
                {"name": name, **{key: volume[key] for key in _MOUNT_FIELDS if key in volume}},
            )
    if job.shared_memory is not None:
        yield (
            {"name": _SHARED_MEMORY, "emptyDir": {"medium": "Memory", "sizeLimit": job.shared_memory}},
            {"name": _SHARED_MEMORY, "mountPath": "/dev/shm"},  # noqa: S108 - the path that the kernel's shm_open(3) uses
        )


def _port_name(job: TrainingJob) -> str:
    return _PORT_NAMES[Kind(job.kind)]
