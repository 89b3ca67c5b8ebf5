"""Jobs of two pods that exchange data, run to their end: what each asked for in the end, and where its bytes went."""

import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from tests.cluster import pytorch, training_pods
from tests.cluster.admission_on_node import GPUS, RAILS
from tests.cluster.node import ClusterNode
from tests.cluster.pods import RESOURCE
from tests.cluster.process import until_found
from tests.cluster.training_pods import Work

BYTES = 4 << 20
"""What each pod of a shape sends to the other."""

_STATUS = "k8s.v1.cni.cncf.io/network-status"
_SELECTOR = "railnet.example.com/test"  # a label of the job's author; no operator and no recogniser uses it
# Two pods of one VF each would be on different rails here, as they are on one node; net1 of two is on the first rail.
_TWO_VFS = {"railnet.io/vf": "2"}
_AT_ONCE = 2  # of eight VFs
_SECONDS = 300.0  # two that import PyTorch at once, from an image that is not in memory yet


class Shape(NamedTuple):
    """How a job's two pods are made: golden pods of an operator, with the labels that tell one from the other.

    Attributes:
        job: whether a Job makes each pod, as its author wrote it; otherwise they are created as an operator would.
    """

    first: str
    second: str
    ranks: tuple[Mapping[str, str], Mapping[str, str]]
    namespace: str = GPUS
    job: bool = False


def _of_one(name: str, label: str, namespace: str = GPUS, *, job: bool = False) -> Shape:
    return Shape(name, name, ({label: "0"}, {label: "1"}), namespace, job)


SHAPES = {
    "tfjob": _of_one("kubedl/tfjob-worker", "replica-index"),
    "pytorchjob": Shape(
        "kubeflow-training-operator/pytorchjob-master", "kubeflow-training-operator/pytorchjob-worker", ({}, {})
    ),
    "mpijob": _of_one("mpi-operator/worker-cpu-namespace", "training.kubeflow.org/replica-index", RAILS),
    "jobset": _of_one("jobset/jobset-workers", "batch.kubernetes.io/job-completion-index"),
    "job": _of_one("tensorflow-templates/worker-namespace", "task", RAILS, job=True),
}


class Ended(NamedTuple):
    """A pod at its end.

    Attributes:
        pod: as the API server has it.
        container: the name of the one that trained.
    """

    pod: dict[str, Any]
    container: str

    @property
    def phase(self) -> str:
        phase: str = self.pod["status"]["phase"]
        return phase

    @property
    def carried(self) -> dict[str, tuple[int, int]]:
        """Give by interface the bytes that came and went, as the container said at its end; empty if it did not."""
        (status,) = (one for one in self.pod["status"]["containerStatuses"] if one["name"] == self.container)
        return training_pods.carried(status["state"]["terminated"].get("message", ""))

    def asked(self) -> dict[str, str]:
        """Give by container how many VFs it asks for; those that ask for none are left out."""
        limits = {one["name"]: one["resources"].get("limits", {}) for one in self.pod["spec"]["containers"]}
        return {name: found[RESOURCE] for name, found in limits.items() if RESOURCE in found}

    def env(self) -> dict[str, str]:
        """Give the environment of the container that trained."""
        (found,) = (one for one in self.pod["spec"]["containers"] if one["name"] == self.container)
        return {variable["name"]: variable.get("value", "") for variable in found["env"]}


def run(node: ClusterNode) -> dict[str, tuple[Ended, Ended]]:
    """Run a job of each shape, as many at once as there are VFs for."""
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        ended = threads.map(lambda name: _run_shape(node, name), SHAPES)
        return dict(zip(SHAPES, ended, strict=True))


def _run_shape(node: ClusterNode, name: str) -> tuple[Ended, Ended]:
    shape = SHAPES[name]
    receiver, sender = f"{name}-0", f"{name}-1"
    _create(node, receiver, shape, shape.first, shape.ranks[0], training_pods.receive())
    address = _address(node, shape.namespace, receiver, "net1")
    _create(node, sender, shape, shape.second, shape.ranks[1], training_pods.send(address, BYTES))
    return (
        _end(node, shape.namespace, receiver, shape.first),
        _end(node, shape.namespace, sender, shape.second),
    )


def _create(node: ClusterNode, name: str, shape: Shape, golden: str, rank: Mapping[str, str], work: Work) -> None:
    labels = {**rank, _SELECTOR: name}
    pod = training_pods.of(golden, shape.namespace, work, labels=labels, annotations=_TWO_VFS)
    pod["metadata"].pop("generateName", None)
    pod["metadata"]["name"] = name
    node.create(training_pods.job_of(name, pod) if shape.job else pod)


def run_pytorch(node: ClusterNode, name: str, *, rail: bool) -> tuple[Ended, Ended]:
    """Run the real job as a PyTorchJob: what it knows of its peers is what the operator tells, and what the webhook adds."""
    golden, labels = "kubeflow-training-operator/pytorchjob", {} if rail else {"railnet.io/net1": "false"}
    master, worker = f"{name}-master-0", f"{name}-worker-0"
    env = {"MASTER_ADDR": master, "WORLD_SIZE": "2"}
    pods = []
    for rank, (role, own) in enumerate({"master": master, "worker": worker}.items()):
        pods.append(
            training_pods.of(
                f"{golden}-{role}",
                GPUS,
                pytorch.WORK,
                labels={**labels, _SELECTOR: own, "training.kubeflow.org/job-name": name},
                annotations=_TWO_VFS if rail else {},
                env={**env, "RANK": str(rank)},
            )
        )
        pods[-1]["metadata"]["name"] = own
    node.create(_headless_service(master), *pods)
    return _end(node, GPUS, master, f"{golden}-master"), _end(node, GPUS, worker, f"{golden}-worker")


def _headless_service(name: str) -> dict[str, Any]:
    """Describe the Service by which the operator's workers find their master; PyTorch tries until the name exists."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": GPUS, "labels": {_SELECTOR: name}},
        "spec": {
            "clusterIP": "None",
            "selector": {_SELECTOR: name},
            "ports": [{"name": "pytorchjob-port", "port": 23456}],
        },
    }


def _address(node: ClusterNode, namespace: str, name: str, ifname: str) -> str:
    """Wait until a pod is said to have an interface, and give its address."""

    def networks() -> dict[str, list[str]]:
        text = _found(node, namespace, name)["metadata"].get("annotations", {}).get(_STATUS, "[]")
        return {network["interface"]: network["ips"] for network in json.loads(text)}

    (found, *_) = until_found(lambda: networks().get(ifname, []), _SECONDS, f"{name} to have {ifname}")
    return found


def _end(node: ClusterNode, namespace: str, name: str, golden: str) -> Ended:
    """Wait for a pod's end, and delete it."""

    def look() -> dict[str, Any]:
        found = _found(node, namespace, name)
        return found if found["status"]["phase"] in ("Succeeded", "Failed") else {}

    ended = Ended(until_found(look, _SECONDS, f"{name} to end"), training_pods.trains(golden))
    node.kubectl.run(
        "delete", "jobs,pods,services", f"--namespace={namespace}", f"--selector={_SELECTOR}={name}", "--wait=false"
    )
    return ended


def _found(node: ClusterNode, namespace: str, name: str) -> dict[str, Any]:
    """Give the pod; an empty one while its Job's controller has made none."""
    found = node.kubectl.get("pods", f"--namespace={namespace}", f"--selector={_SELECTOR}={name}")
    return found[0] if found else {"metadata": {}, "status": {"phase": ""}}
