"""The pods that operators of training jobs make, by the job's kind: as `job_pods`, which names the kinds."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from railnet.errors import Misconfigured
from railnet.jobs.job_pods.pod_of_template import (
    JobManifest,
    JsonObject,
    RenderedPod,
    at,
    completion_pod,
    containers_of,
    count_of,
    mapping,
    number,
    pod_of,
    set_variables,
)

RAY_CLUSTERS = {"RayCluster": "spec", "RayJob": "spec.rayClusterSpec", "RayService": "spec.rayClusterConfig"}
_REPLICAS = "ReplicaSpecs"  # tfReplicaSpecs, pytorchReplicaSpecs, …
_KUBEFLOW = "training.kubeflow.org/"
_JOBSET = "jobset.sigs.k8s.io/"
_LWS = "leaderworkerset.sigs.k8s.io/"
_TRAINING = (
    "tensorflow",
    "pytorch",
    "mpi",
    "xgboost",
    "xgboostjob",
    "paddle",
    "jax",
)  # the container's name by convention
_TF_PORT = 2222
_MPI_V2 = "v2beta1"
_NODE, _NO_RUNTIME = "node", "the runtime {} is not in the file: what its template has is not seen here"


def kubeflow(job: JobManifest) -> Iterator[RenderedPod]:
    """Yield the pods of the Kubeflow training-operator, or of mpi-operator (v2beta1).

    Raises:
        Misconfigured: the job has another form.
    """
    if str(job.document.get("apiVersion")).endswith(_MPI_V2):
        yield from _mpi(job)
        return
    replicas = _replicas(job)
    for role, count, template in replicas:
        labels = {
            f"{_KUBEFLOW}operator-name": f"{job.kind.lower()}-controller",
            f"{_KUBEFLOW}job-name": job.name,
            f"{_KUBEFLOW}replica-type": role,
            **({} if role == "launcher" else {f"{_KUBEFLOW}replica-index": "0"}),
            **({f"{_KUBEFLOW}job-role": "master"} if role == "master" else {}),
        }
        pod = pod_of(job, template, f"{job.name}-{role}-0", labels)
        set_variables(job, pod, _TRAINING, _of_framework(job, replicas, role, includes_evaluator=True))
        yield RenderedPod(pod, count)


def kubedl(job: JobManifest) -> Iterator[RenderedPod]:
    """Yield the pods of KubeDL.

    Raises:
        Misconfigured: the job has another form.
    """
    replicas = _replicas(job)
    size = sum(count for _, count, _ in replicas)
    for role, count, template in replicas:
        labels = {
            "group-name": "training.kubedl.io",
            "job-name": job.name,
            "replica-type": role,
            "replica-index": "0",
            **({"job-role": "master"} if role == "master" else {}),
        }
        pod = pod_of(job, template, f"{job.name}-{role}-0", labels)
        if job.annotations.get("kubedl.io/network-mode") == "host":
            pod["spec"] |= {"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"}
        variables = _of_framework(job, replicas, role, includes_evaluator=False)
        set_variables(job, pod, _TRAINING, {"WORLD_SIZE": str(size)} if job.kind == "PyTorchJob" else variables)
        yield RenderedPod(pod, count)


def job_set(job: JobManifest) -> Iterator[RenderedPod]:
    """Yield the pods of a JobSet.

    Raises:
        Misconfigured: the job has another form.
    """
    for entry in _entries(job, job.spec.get("replicatedJobs"), "spec.replicatedJobs"):
        yield _of_job_set(job, job.name, entry)


def train_job(job: JobManifest) -> Iterator[RenderedPod]:
    """Yield the pods of a TrainJob: of the jobs of its runtime, if that is in the file; else of the node, as far as the TrainJob says it.

    Raises:
        Misconfigured: the job has another form.
    """
    runtime = str(at(job, "spec.runtimeRef").get("name"))
    trainer = mapping(job, job.spec.get("trainer") or {}, "spec.trainer")
    known = [other for other in job.others if _is_runtime(other, runtime)]
    policy: Mapping[str, Any] = {}
    if known:
        runtime_manifest = JobManifest(known[0])
        entries = _entries(
            runtime_manifest,
            at(runtime_manifest, "spec.template.spec").get("replicatedJobs"),
            "spec.template.spec.replicatedJobs",
        )
        policy = mapping(runtime_manifest, runtime_manifest.spec.get("mlPolicy") or {}, "spec.mlPolicy")
    else:
        container = {"name": _NODE, "image": trainer.get("image")}
        template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
        entries = [{"name": _NODE, "template": {"spec": {"completionMode": "Indexed", "template": template}}}]
    for entry in entries:
        rendered = _of_job_set(job, job.name, entry)
        if entry.get("name") == _NODE:
            rendered = _with_trainer(job, rendered, trainer, policy)
        yield rendered._replace(note="" if known else _NO_RUNTIME.format(runtime))


def leader_worker_set(job: JobManifest) -> Iterator[RenderedPod]:
    """Yield the leader and the worker of a LeaderWorkerSet's first group.

    Raises:
        Misconfigured: the job has another form.
    """
    group = at(job, "spec.leaderWorkerTemplate")
    size = count_of(job, group, "size", "spec.leaderWorkerTemplate.size")
    groups, name = number(job, "spec.replicas"), f"{job.name}-0"
    annotations = {f"{_LWS}size": str(size)}
    shared = {f"{_LWS}name": job.name, f"{_LWS}group-index": "0"}
    worker = mapping(job, group.get("workerTemplate"), "spec.leaderWorkerTemplate.workerTemplate")
    leader = group.get("leaderTemplate") or worker
    for index, template, count in ((0, leader, groups), (1, worker, groups * (size - 1))):
        if count > 0:
            owner = ("apps/v1", "StatefulSet", job.name if index == 0 else name)
            labels = {**shared, f"{_LWS}worker-index": str(index)}
            own_name = name if index == 0 else f"{name}-{index}"
            yield RenderedPod(pod_of(job, template, own_name, labels, annotations=annotations, owner=owner), count)


def ray(job: JobManifest) -> Iterator[RenderedPod]:
    """Yield the head and a worker of each group of a RayCluster, or of a RayJob's or RayService's cluster.

    Raises:
        Misconfigured: the job has another form.
    """
    path = RAY_CLUSTERS[job.kind]
    cluster = at(job, path)
    name = job.name if job.kind == "RayCluster" else f"{job.name}-xxxxx"
    owner = ("ray.io/v1", "RayCluster", name)
    labels = {"ray.io/is-ray-node": "yes", "ray.io/cluster": name}
    head = mapping(
        job, mapping(job, cluster.get("headGroupSpec"), f"{path}.headGroupSpec").get("template"), "the head's template"
    )
    head_labels = {**labels, "ray.io/node-type": "head", "ray.io/group": "headgroup"}
    yield RenderedPod(pod_of(job, head, f"{name}-head-xxxxx", head_labels, owner=owner), 1)
    for group in _entries(job, cluster.get("workerGroupSpecs") or [], f"{path}.workerGroupSpecs"):
        group_name, hosts = str(group.get("groupName")), count_of(job, group, "numOfHosts", "numOfHosts")
        several = {"ray.io/worker-group-replica-index": "0", "ray.io/replica-host-index": "0"} if hosts > 1 else {}
        worker_labels = {**labels, "ray.io/node-type": "worker", "ray.io/group": group_name, **several}
        template = mapping(job, group.get("template"), f"the template of {group_name}")
        pod = pod_of(job, template, f"{name}-{group_name}-worker-xxxxx", worker_labels, owner=owner)
        yield RenderedPod(pod, hosts * count_of(job, group, "replicas", "replicas"))


def volcano(job: JobManifest) -> Iterator[RenderedPod]:
    """Yield the pods of a Volcano Job.

    Raises:
        Misconfigured: the job has another form.
    """
    tasks = _entries(job, job.spec.get("tasks"), "spec.tasks")
    size = sum(count_of(job, task, "replicas", "replicas") for task in tasks)
    plugins = mapping(job, job.spec.get("plugins") or {}, "spec.plugins")
    for position, task in enumerate(tasks):
        name = str(task.get("name") or f"default{position}")
        keys = {"volcano.sh/job-name": job.name, "volcano.sh/task-spec": name, "volcano.sh/task-index": "0"}
        template = mapping(job, task.get("template"), f"the template of {name}")
        pod = pod_of(job, template, f"{job.name}-{name}-0", keys, annotations=keys)
        pod["spec"] = {"schedulerName": "volcano", "subdomain": job.name, **pod["spec"]}
        set_variables(job, pod, _TRAINING, {"WORLD_SIZE": str(size)} if "pytorch" in plugins else {})
        yield RenderedPod(pod, count_of(job, task, "replicas", "replicas"))


def _mpi(job: JobManifest) -> Iterator[RenderedPod]:
    for role, count, template in _replicas(job):
        labels = {
            f"{_KUBEFLOW}operator-name": "mpi-operator",
            f"{_KUBEFLOW}job-name": job.name,
            f"{_KUBEFLOW}job-role": role,
        }
        if role != "launcher" or job.spec.get("runLauncherAsWorker") is True:
            labels[f"{_KUBEFLOW}replica-index"] = "0"
        if role == "launcher":
            rendered = completion_pod(job, {"template": template}, f"{job.name}-launcher", labels)
            pod = rendered.pod
        else:
            pod = pod_of(job, template, f"{job.name}-{role}-0", labels)
        set_variables(job, pod, (), {"K_MPI_JOB_ROLE": role})
        yield RenderedPod(pod, count)


def _replicas(job: JobManifest) -> list[tuple[str, int, Mapping[str, Any]]]:
    """Return role, number and pod template of each entry of `…ReplicaSpecs`."""
    key = next((key for key in map(str, job.spec) if key.endswith(_REPLICAS)), None)
    if key is None:
        raise Misconfigured(f"{job}: spec has no …{_REPLICAS}; it should say how many pods of each role there are")
    roles = mapping(job, job.spec[key], f"spec.{key}")
    return [
        (
            str(role).lower(),
            count_of(job, mapping(job, entry, f"spec.{key}.{role}"), "replicas", f"spec.{key}.{role}.replicas"),
            mapping(job, entry.get("template"), f"spec.{key}.{role}.template"),
        )
        for role, entry in roles.items()
    ]


def _of_framework(
    job: JobManifest, replicas: list[tuple[str, int, Mapping[str, Any]]], role: str, *, includes_evaluator: bool
) -> dict[str, str]:
    """Return the variables that say how large a job is, and TensorFlow's, which a review may rewrite."""
    size = sum(count for _, count, _ in replicas)
    if job.kind == "TFJob":
        if size == 1:
            return {}
        namespace = job.metadata.get("namespace") or "default"
        cluster = {
            name: [f"{job.name}-{name}-{index}.{namespace}.svc:{_TF_PORT}" for index in range(count)]
            for name, count, _ in replicas
            if name != "evaluator" or includes_evaluator
        }
        config = {"cluster": cluster, "task": {"type": role, "index": 0}, "environment": "cloud"}
        return {"TF_CONFIG": json.dumps(config, separators=(",", ":"))}
    names = {
        "PyTorchJob": "PET_NNODES",
        "PaddleJob": "PADDLE_NNODES",
        "JAXJob": "NUM_PROCESSES",
        "XGBoostJob": "WORLD_SIZE",
    }
    return {names[job.kind]: str(size)} if job.kind in names else {}


def _of_job_set(job: JobManifest, name: str, entry: Mapping[str, Any]) -> RenderedPod:
    """Return the first pod of a replicated job, which is an Indexed Job unless it says otherwise."""
    replicated = str(entry.get("name"))
    replicas = count_of(job, entry, "replicas", f"replicas of {replicated}")
    template = mapping(job, entry.get("template"), f"the template of {replicated}")
    spec = {"completionMode": "Indexed", **mapping(job, template.get("spec"), f"the template of {replicated}")}
    keys = {
        f"{_JOBSET}jobset-name": name,
        f"{_JOBSET}replicatedjob-name": replicated,
        f"{_JOBSET}replicatedjob-replicas": str(replicas),
        f"{_JOBSET}job-index": "0",
    }
    rendered = completion_pod(job, spec, f"{name}-{replicated}-0", keys, annotations=keys)
    rendered.pod["spec"]["subdomain"] = name
    return RenderedPod(rendered.pod, replicas * (rendered.replicas or 0))


def _with_trainer(
    job: JobManifest, rendered: RenderedPod, trainer: Mapping[str, Any], policy: Mapping[str, Any]
) -> RenderedPod:
    """Return the pod of the node with what the TrainJob says of its container and of the number of nodes."""
    nodes = count_of(job, {**policy, **trainer}, "numNodes", "spec.trainer.numNodes")
    container = next((entry for entry in containers_of(job, rendered.pod["spec"]) if entry.get("name") == _NODE), None)
    if container is not None and trainer.get("resourcesPerNode"):
        container["resources"] = _requested(mapping(job, trainer["resourcesPerNode"], "spec.trainer.resourcesPerNode"))
    set_variables(job, rendered.pod, (_NODE,), {"PET_NNODES": str(nodes)})
    return rendered._replace(replicas=nodes)


def _requested(resources: Mapping[str, Any]) -> JsonObject:
    limits = resources.get("limits")
    requests = resources.get("requests")
    return {
        **resources,
        "requests": {
            **(limits if isinstance(limits, dict) else {}),
            **(requests if isinstance(requests, dict) else {}),
        },
    }


def _is_runtime(document: Mapping[str, Any], name: str) -> bool:
    metadata = document.get("metadata")
    kinds = ("ClusterTrainingRuntime", "TrainingRuntime")
    return document.get("kind") in kinds and isinstance(metadata, dict) and metadata.get("name") == name


def _entries(job: JobManifest, value: object, path: str) -> list[dict[str, Any]]:
    if not isinstance(value, list):
        raise Misconfigured(f"{job}: {path} is {'missing' if value is None else f'{value!r:.60}'}; it should be a list")
    return [mapping(job, entry, f"{path}[{position}]") for position, entry in enumerate(value)]
