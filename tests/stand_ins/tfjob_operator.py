"""A stand-in for KubeDL's controller of TFJobs: which pods and Services it makes of a job, and what it does when they change.

Pure. Source: kubedl-io/kubedl at b93a2b4, controllers/tensorflow/{tensorflow,tfjob_controller}.go (TF_CONFIG, roles, their
order), apis/training/v1alpha1/tfjob_{constants,defaults}.go (container, port, defaults), pkg/util/train/train_util.go (exit
codes), and pkg/job_controller/{job,pod,service,hostnetwork,failover,dag_sched}.go (labels, owners, host-network mode, fail-over).
The feature gates have their defaults: other roles wait until the parameter servers run. An `Evaluator` gets no pod:
GetReconcileOrders forgets it.

Left out: gangs, spot replicas, elastic scaling, AIMaster, TensorBoard; the job's status, and with it its end: cleanPodPolicy, and
that nothing fails over any more; and a defect: getContainerHostNetworkPort takes a wrong port of a container with several.
"""

import copy
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

GROUP, VERSION, KIND = "training.kubedl.io", "v1alpha1", "TFJob"
HOST_NETWORK = "kubedl.io/network-mode"
HOST_PORTS = range(20000, 29999)  # main.go, --hostnetwork-port-range; rand.IntnRange leaves out its end
_CONTAINER, _PORT_NAME, _PORT = "tensorflow", "tfjob-port", 2222
_ROLES = ("PS", "Master", "Chief", "Worker")  # GetReconcileOrders
_NO_POD = "Evaluator"  # is not in GetReconcileOrders
_MASTERS = ("Master", "Chief")
# Which failures are tried again: signals by their exit code, SIGUSR1 as the user's own choice, and reasons of a pod's status.
_RETRYABLE_CODES = frozenset({130, 137, 143, 138})
_RETRYABLE_REASONS = frozenset({"OOMKilled", "Killed", "Evicted", "UnexpectedAdmissionError"})

_Object = Mapping[str, Any]


class BadJob(ValueError):
    """The TFJob cannot be used; the message says why."""


@dataclass(frozen=True, slots=True)
class Changes:
    """What the controller does next.

    Attributes:
        created: pods and Services, complete.
        failed: the names of the pods that are deleted because another try is made; the next look creates them again.
        target_ports: by the name of a Service, the port that its pod has now; the first port of the Service is patched.
    """

    created: tuple[_Object, ...] = ()
    failed: tuple[str, ...] = ()
    target_ports: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Replica:
    role: str
    index: int
    spec: _Object

    @property
    def type(self) -> str:
        return self.role.lower()


def reconcile(
    job: _Object, pods: Collection[_Object], services: Collection[_Object], port: Callable[[], int]
) -> Changes:
    """Return what is missing or has to change.

    Args:
        job: as the API server has it, with namespace and uid.
        pods: of the job, as the API server has them.
        services: of the job, as the API server has them.
        port: returns a port for a new pod in host-network mode. KubeDL takes a random one and does not look which are in use.

    Raises:
        BadJob: a role is unknown, or has no container.
    """
    found = {one["metadata"]["name"]: one for one in pods}
    existing = {one["metadata"]["name"]: one for one in services}
    created: list[_Object] = []
    failed: list[str] = []
    target_ports: dict[str, int] = {}
    for replica in _reconciled(job, found):
        name = _name(job, replica)
        pod = found.get(name)
        if pod is None:
            pod = _pod(job, replica, port() if is_host_network(job) else None)
            created.append(pod)
        elif _fails_over(replica, pod):
            failed.append(name)
        own = _default_port(pod["spec"])
        if name not in existing:
            created.append(_service(job, replica, own))
        elif is_host_network(job) and existing[name]["spec"]["ports"][0]["targetPort"] != own:
            target_ports[name] = own
    return Changes(tuple(created), tuple(failed), target_ports)


def _reconciled(job: _Object, pods: Mapping[str, _Object]) -> Iterator[_Replica]:
    """Yield the replicas that do not wait for parameter servers, which have to run or to have run."""
    replicas = list(_replicas(job))
    servers = [pods.get(_name(job, one), {}).get("status", {}).get("phase") for one in replicas if one.role == "PS"]
    ready = all(phase in ("Running", "Succeeded", "Failed") for phase in servers)
    return (one for one in replicas if ready or one.role == "PS")


def is_host_network(job: _Object) -> bool:
    """Return whether the job asks for KubeDL's host-network mode; other values of the annotation mean nothing."""
    return bool(job["metadata"].get("annotations", {}).get(HOST_NETWORK) == "host")


def tf_config(job: _Object, role: str, index: int, own_port: int | None = None) -> str:
    """Return the text of TF_CONFIG for one task. `own_port` stands in the task's own entry; the others have the declared port."""
    cluster: dict[str, list[str]] = {}
    for replica in _replicas(job):
        own = (replica.role, replica.index) == (role, index)
        host = f"{_name(job, replica)}.{job['metadata']['namespace']}.svc"
        declared = _default_port(replica.spec["template"]["spec"])
        cluster.setdefault(replica.type, []).append(f"{host}:{own_port if own and own_port else declared}")
    task = {"type": role.lower(), "index": index}
    # The keys of Go's maps are sorted.
    config = {"cluster": dict(sorted(cluster.items())), "task": task, "environment": "cloud"}
    return json.dumps(config, separators=(",", ":"))


def _replicas(job: _Object) -> Iterator[_Replica]:
    specs = job["spec"]["tfReplicaSpecs"]
    by_role = {name: role for name in specs for role in _ROLES if role.lower() == name.lower()}
    for name in specs:
        if name not in by_role and name.lower() != _NO_POD.lower():
            raise BadJob(f"TFJob {job['metadata']['name']}: there is no role {name!r}; use {', '.join(_ROLES)}")
        if not specs[name]["template"]["spec"].get("containers"):
            raise BadJob(f"TFJob {job['metadata']['name']}: the role {name} has no containers")
    for name in sorted(by_role, key=lambda name: _ROLES.index(by_role[name])):
        for index in range(specs[name].get("replicas", 1)):
            yield _Replica(by_role[name], index, specs[name])


def _name(job: _Object, replica: _Replica) -> str:
    return f"{job['metadata']['name']}-{replica.type}-{replica.index}"


def _labels(job: _Object, replica: _Replica) -> dict[str, str]:
    return {
        "group-name": GROUP,
        "job-name": job["metadata"]["name"],
        "replica-type": replica.type,
        "replica-index": str(replica.index),
    }


def _metadata(job: _Object, replica: _Replica, labels: Mapping[str, str]) -> dict[str, Any]:
    owner = {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": KIND,
        "name": job["metadata"]["name"],
        "uid": job["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    name, namespace = _name(job, replica), job["metadata"]["namespace"]
    return {"name": name, "namespace": namespace, "labels": dict(labels), "ownerReferences": [owner]}


def _pod(job: _Object, replica: _Replica, host_port: int | None) -> _Object:
    template = copy.deepcopy(replica.spec["template"])
    spec = template["spec"]
    labels = {**template.get("metadata", {}).get("labels", {}), **_labels(job, replica)}
    if replica.role in _MASTERS:
        labels["job-role"] = "master"
    metadata = _metadata(job, replica, labels)
    if annotations := template.get("metadata", {}).get("annotations"):
        metadata["annotations"] = annotations
    container = _container(spec)
    _set_port(container, host_port)
    if host_port is not None:
        spec |= {"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"}
    for one in spec["containers"]:
        one.setdefault("terminationMessagePolicy", "FallbackToLogsOnError")
    policy = replica.spec.get("restartPolicy", "ExitCode")
    spec["restartPolicy"] = "Never" if policy == "ExitCode" else policy
    if container["name"] == _CONTAINER and _is_distributed(job):
        text = tf_config(job, replica.role, replica.index, host_port)
        container["env"] = [*container.get("env", ()), {"name": "TF_CONFIG", "value": text}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _service(job: _Object, replica: _Replica, target_port: int) -> _Object:
    labels = _labels(job, replica)
    port = {"name": _PORT_NAME, "port": _default_port(replica.spec["template"]["spec"]), "targetPort": target_port}
    spec: dict[str, Any] = {"selector": labels, "ports": [port]}
    if not is_host_network(job):
        spec["clusterIP"] = "None"
    return {"apiVersion": "v1", "kind": "Service", "metadata": _metadata(job, replica, labels), "spec": spec}


def _container(spec: _Object) -> dict[str, Any]:
    """Return the container that trains: the one of KubeDL's name, else the first."""
    named: Iterable[dict[str, Any]] = (one for one in spec["containers"] if one["name"] == _CONTAINER)
    first: dict[str, Any] = spec["containers"][0]
    return next(iter(named), first)


def _default_port(spec: _Object) -> int:
    """Return the number of the container's port of KubeDL's name, which has a default."""
    ports = _container(spec).get("ports", ())
    return next((port["containerPort"] for port in ports if port.get("name") == _PORT_NAME), _PORT)


def _set_port(container: dict[str, Any], host_port: int | None) -> None:
    ports = container.setdefault("ports", [])
    named = next((port for port in ports if port.get("name") == _PORT_NAME), None)
    if named is None:
        named = {"name": _PORT_NAME, "containerPort": _PORT}
        ports.append(named)
    if host_port is not None:
        named |= {"containerPort": host_port, "hostPort": host_port}


def _is_distributed(job: _Object) -> bool:
    return len(list(_replicas(job))) != 1


def _fails_over(replica: _Replica, pod: _Object) -> bool:
    """Return whether a pod that has ended is deleted and made again."""
    if replica.spec.get("restartPolicy", "ExitCode") != "ExitCode":
        return False
    status = pod.get("status", {})
    codes = [
        one["state"]["terminated"]["exitCode"]
        for one in status.get("containerStatuses", ())
        if one["name"] == _CONTAINER and "terminated" in one.get("state", {})
    ]
    ended = bool(codes) or status.get("phase") == "Failed"
    return ended and (bool(_RETRYABLE_CODES.intersection(codes)) or status.get("reason") in _RETRYABLE_REASONS)
