"""A stand-in for the controllers of TFJobs, KubeDL's and Kubeflow's: which pods and Services they make of a job, and what they do when these change.

Pure. The job's apiVersion says whose it is.

Source of KubeDL's: kubedl-io/kubedl at b93a2b4, controllers/tensorflow/{tensorflow,tfjob_controller}.go (TF_CONFIG, roles, their
order), apis/training/v1alpha1/tfjob_{constants,defaults}.go (container, port, defaults), pkg/util/train/train_util.go (exit
codes), and pkg/job_controller/{job,pod,service,hostnetwork,failover,dag_sched}.go (labels, owners, host-network mode, fail-over).
The feature gates have their defaults: other roles wait until the parameter servers run. An `Evaluator` gets no pod:
GetReconcileOrders forgets it.

Source of Kubeflow's: kubeflow/training-operator, pkg/controller.v1/tensorflow/tfjob_controller.go (order, TF_CONFIG, labels),
pkg/controller.v1/common/{pod,service}.go (fail-over, Services), pkg/util/train/train_util.go (exit codes). It knows no host-network
mode, has no role wait for another, and never changes a Service.

Left out: gangs, spot replicas, elastic scaling, AIMaster, TensorBoard, dynamic workers, Kubeflow's evaluators; the job's status, and with
it its end: cleanPodPolicy, and that nothing fails over any more; and a defect of KubeDL's: getContainerHostNetworkPort takes a wrong port
of a container with several.
"""

import copy
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

KIND = "TFJob"
HOST_NETWORK = "kubedl.io/network-mode"
HOST_PORTS = range(20000, 29999)  # main.go, --hostnetwork-port-range; rand.IntnRange leaves out its end
_CONTAINER, _PORT_NAME, _PORT = "tensorflow", "tfjob-port", 2222
_ROLES = ("PS", "Master", "Chief", "Worker")  # GetReconcileOrders
_NO_POD = "Evaluator"  # is not in GetReconcileOrders
_MASTERS = ("Master", "Chief")
_NO_CODE = 0xBEEF  # of a pod whose container never ran; Kubeflow's comparison takes it for "try again"

_Object = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Operator:
    """What differs between the operators.

    Attributes:
        group, version: of their TFJobs.
        mark: the label that all of its pods and Services have.
        prefix: what the other labels' names begin with.
        host_network: whether it has a host-network mode.
        waits: whether other roles wait until the parameter servers run.
        restart_policy: of a role that says none.
        retryable_codes: the exit codes of failures that are tried again.
        retryable_reasons: the reasons of a pod's status that are tried again.
    """

    group: str
    version: str
    mark: tuple[str, str]
    prefix: str
    host_network: bool
    waits: bool
    restart_policy: str
    retryable_codes: Collection[int]
    retryable_reasons: Collection[str]

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}"

    def labels(self, job: str) -> dict[str, str]:
        """Return the labels that all objects of a job have."""
        return dict([self.mark, (f"{self.prefix}job-name", job)])


KUBEDL = Operator(
    group="training.kubedl.io",
    version="v1alpha1",
    mark=("group-name", "training.kubedl.io"),
    prefix="",
    host_network=True,
    waits=True,
    restart_policy="ExitCode",
    retryable_codes=frozenset({130, 137, 143, 138}),  # signals, SIGUSR1 as the user's own choice
    retryable_reasons=frozenset({"OOMKilled", "Killed", "Evicted", "UnexpectedAdmissionError"}),
)
KUBEFLOW = Operator(
    group="kubeflow.org",
    version="v1",
    mark=("training.kubeflow.org/operator-name", "tfjob-controller"),
    prefix="training.kubeflow.org/",
    host_network=False,
    waits=False,
    restart_policy="Never",
    retryable_codes=range(128, 1 << 32),
    retryable_reasons=frozenset(),
)


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


def operator_of(job: _Object) -> Operator:
    """Return whose job it is."""
    return KUBEFLOW if job.get("apiVersion") == KUBEFLOW.api_version else KUBEDL


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
        elif _fails_over(operator_of(job), replica, pod):
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
    if not operator_of(job).waits:
        return iter(replicas)
    servers = [pods.get(_name(job, one), {}).get("status", {}).get("phase") for one in replicas if one.role == "PS"]
    ready = all(phase in ("Running", "Succeeded", "Failed") for phase in servers)
    return (one for one in replicas if ready or one.role == "PS")


def is_host_network(job: _Object) -> bool:
    """Return whether the job asks KubeDL for its host-network mode; other values of the annotation mean nothing."""
    return operator_of(job).host_network and job["metadata"].get("annotations", {}).get(HOST_NETWORK) == "host"


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
    operator = operator_of(job)
    own = {f"{operator.prefix}replica-type": replica.type, f"{operator.prefix}replica-index": str(replica.index)}
    return operator.labels(job["metadata"]["name"]) | own


def _metadata(job: _Object, replica: _Replica, labels: Mapping[str, str]) -> dict[str, Any]:
    owner = {
        "apiVersion": operator_of(job).api_version,
        "kind": KIND,
        "name": job["metadata"]["name"],
        "uid": job["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    name, namespace = _name(job, replica), job["metadata"]["namespace"]
    return {"name": name, "namespace": namespace, "labels": dict(labels), "ownerReferences": [owner]}


def _pod(job: _Object, replica: _Replica, host_port: int | None) -> _Object:
    operator = operator_of(job)
    template = copy.deepcopy(replica.spec["template"])
    spec = template["spec"]
    labels = {**template.get("metadata", {}).get("labels", {}), **_labels(job, replica)}
    if _is_master(job, replica):
        labels[f"{operator.prefix}job-role"] = "master"
    metadata = _metadata(job, replica, labels)
    if annotations := template.get("metadata", {}).get("annotations"):
        metadata["annotations"] = annotations
    container = _container(spec)
    _set_port(container, host_port)
    if host_port is not None:
        spec |= {"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"}
    if operator is KUBEDL:
        for one in spec["containers"]:
            one.setdefault("terminationMessagePolicy", "FallbackToLogsOnError")
    policy = replica.spec.get("restartPolicy", operator.restart_policy)
    spec["restartPolicy"] = "Never" if policy == "ExitCode" else policy
    if container["name"] == _CONTAINER and _is_distributed(job):
        text = tf_config(job, replica.role, replica.index, host_port)
        container["env"] = [*container.get("env", ()), {"name": "TF_CONFIG", "value": text}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _service(job: _Object, replica: _Replica, target_port: int) -> _Object:
    labels = _labels(job, replica)
    port = {"name": _PORT_NAME, "port": _default_port(replica.spec["template"]["spec"])}
    if operator_of(job) is KUBEDL:
        port["targetPort"] = target_port
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


def _is_master(job: _Object, replica: _Replica) -> bool:
    """Return whether a pod has the label of the master: in Kubeflow's jobs without a master it is the first worker."""
    if operator_of(job) is KUBEFLOW and not any(one.role in _MASTERS for one in _replicas(job)):
        return (replica.role, replica.index) == ("Worker", 0)
    return replica.role in _MASTERS


def _fails_over(operator: Operator, replica: _Replica, pod: _Object) -> bool:
    """Return whether a pod that has ended is deleted and made again."""
    if replica.spec.get("restartPolicy", operator.restart_policy) != "ExitCode":
        return False
    status = pod.get("status", {})
    codes = [
        one["state"]["terminated"]["exitCode"]
        for one in status.get("containerStatuses", ())
        if one["name"] == _CONTAINER and "terminated" in one.get("state", {})
    ]
    ended = bool(codes) or status.get("phase") == "Failed"
    return ended and (
        any(code in operator.retryable_codes for code in codes or [_NO_CODE])
        or status.get("reason") in operator.retryable_reasons
    )
