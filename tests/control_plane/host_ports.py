"""Pods in host-network mode, and two replicas of the webhook that give them ports: what a test and a bench share."""

import http.client
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.cluster.chart import ENABLED
from tests.cluster.process import wait_until
from tests.control_plane.api import Api, ApiAnswer
from tests.control_plane.cluster import Cluster
from tests.control_plane.replica import Replica
from tests.control_plane.server import ApiServer
from tests.railnet.admission.host_network.test_service_review import KUBEFLOW
from tests.railnet.admission.reviewing import a_review, patch_of

JsonObject = dict[str, Any]
PORTS = range(20000, 30000)
"""The range of the chart."""

_VALUES = {"webhook": {**ENABLED, "hostNetwork": ENABLED}}
_NAMESPACE = "host-network"
_POD_BYTES = 7 << 10  # as pods of real jobs have, by their variables
_HOST = {"railnet.io/network-mode": "host"}
_SECONDS = 60.0


@contextmanager
def two_replicas(server: ApiServer, files: Path, ports: range = PORTS) -> Iterator[Cluster]:
    """Have two replicas with a range of ports, which have listed all pods."""
    options = [f"--host-ports={ports[0]}-{ports[-1]}"]
    with Cluster(server, _VALUES, files, 2, options) as cluster:
        cluster.namespace(_NAMESPACE, None)
        for replica in cluster.replicas:
            assert created(server.api.create("/api/v1/namespaces/railnet/pods", _own_pod(replica.pod)))
        # Until then they refuse. Connections alternate, so ten pods in a row say it of both.
        wait_until(
            lambda: all(created(dry(cluster, a_pod("listed"))) for _ in range(10)), _SECONDS, "the pods to be listed"
        )
        yield cluster
        server.api.delete("/api/v1/namespaces/railnet/pods?gracePeriodSeconds=0")
        server.api.delete(f"/api/v1/namespaces/{_NAMESPACE}")


def _own_pod(name: str) -> JsonObject:
    metadata = {"name": name, "labels": {"app.kubernetes.io/name": "railnet-admission"}}
    spec = {"containers": [{"name": "c", "image": "i"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def a_pod(name: str, annotations: JsonObject = _HOST, labels: JsonObject = KUBEFLOW) -> JsonObject:
    """Return a pod of a TFJob, in host-network mode where no other annotations are given."""
    ports = [{"name": "tensorboard", "containerPort": 6006}, {"name": "tfjob-port", "containerPort": 2222}]
    container = {"name": "tensorflow", "image": "registry.example/train:1", "ports": ports}
    metadata = {"name": name, "labels": labels, "annotations": annotations}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}}


def job(name: str, index: int = 0) -> JsonObject:
    """Return the labels of a member of a TFJob."""
    return {**KUBEFLOW, "training.kubeflow.org/job-name": name, "training.kubeflow.org/replica-index": str(index)}


def path(kind: str, *, dry_run: bool = False) -> str:
    """Return where objects of a kind are created."""
    return f"/api/v1/namespaces/{_NAMESPACE}/{kind}{'?dryRun=All' * dry_run}"


def with_host_ports(name: str, ports: Iterable[int]) -> JsonObject:
    """Return a pod of no job, in its own network, with host ports that its author chose."""
    declared = [{"containerPort": port, "hostPort": port} for port in ports]
    spec = {"containers": [{"name": "c", "image": "i", "ports": declared}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def dry(cluster: Cluster, pod: JsonObject) -> ApiAnswer:
    """Create a pod as a dry run."""
    return cluster.server.api.create(path("pods", dry_run=True), pod)


def created(answer: ApiAnswer) -> bool:
    """Return whether the API server has created the object."""
    return answer.status == http.client.CREATED


@contextmanager
def many_pods(cluster: Cluster, count: int) -> Iterator[list[ApiAnswer]]:
    """Create large pods at the same moment, and give the API server's answers; delete the pods after the block."""

    def create(api: Api, number: int) -> ApiAnswer:
        return api.create(path("pods"), _large_pod(f"many-{number}", job("many", number)))

    def delete(api: Api, number: int) -> ApiAnswer:
        return api.send("DELETE", f"{path('pods')}/many-{number}?gracePeriodSeconds=0")

    yield _at_once(cluster, create, range(count))
    _at_once(cluster, delete, range(count))


def _large_pod(name: str, labels: JsonObject) -> JsonObject:
    pod = a_pod(name, labels=labels)
    pod["spec"]["containers"][0]["env"] = [
        {"name": f"TRAIN_OPTION_{number:02}", "value": f"a value of some length, as there are in jobs: {number:02}"}
        for number in range(_POD_BYTES // 100)
    ]
    return pod


def _at_once(cluster: Cluster, send: Callable[[Api, int], ApiAnswer], numbers: Iterable[int]) -> list[ApiAnswer]:
    """Send a request for each number, by sixteen connections."""
    own = threading.local()
    opened: list[Api] = []

    def connect() -> None:
        own.api = cluster.server.api.another()
        opened.append(own.api)

    try:
        with ThreadPoolExecutor(16, initializer=connect) as threads:
            return list(threads.map(lambda number: send(own.api, number), numbers))
    finally:
        for api in opened:
            api.close()


def given(answers: Iterable[ApiAnswer]) -> list[int]:
    """Return the ports of created pods."""
    return [int(answer.object["metadata"]["annotations"]["railnet.io/host-port"]) for answer in answers]


def wait_until_listed(replica: Replica) -> None:
    """Wait until a replica that has started has listed all pods: until then it refuses pods in the mode."""
    wait_until(lambda: _asked(replica)["allowed"], _SECONDS, "the pods to be listed")


def next_port(replica: Replica) -> int:
    """Return the port that a replica gives to a pod of which it hears by a review alone."""
    (annotations,) = (one["value"] for one in patch_of(_asked(replica)) if "host-port" in one["path"])
    return int(annotations)


def _asked(replica: Replica) -> JsonObject:
    """Return the response of one replica to a review."""
    answer: JsonObject = replica.review(a_review(a_pod("after"), _NAMESPACE))["response"]
    return answer
