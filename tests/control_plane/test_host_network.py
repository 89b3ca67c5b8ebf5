"""Host-network mode with two replicas of the webhook: pods and Services as the API server stores them.

`scripts/bench host-ports` measures the webhook with ten thousand pods by these tests.
"""

import copy
import http.client
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.cluster.chart import ENABLED
from tests.cluster.process import wait_until
from tests.control_plane.api import Api, ApiAnswer
from tests.control_plane.cluster import Cluster
from tests.control_plane.replica import Replica
from tests.control_plane.server import ApiServer
from tests.railnet.admission.goldens import GOLDENS, Golden
from tests.railnet.admission.reviewing import a_review, patch_of
from tests.railnet.admission.test_service_review import KUBEFLOW, a_service

JsonObject = dict[str, Any]
VALUES = {"webhook": {**ENABLED, "hostNetwork": ENABLED}}
NAMESPACE = "host-network"
LAST = 29999
POD_BYTES = 7 << 10  # as pods of real jobs have, by their variables
IN_MODE = [golden for golden in GOLDENS if golden.host_port and not golden.configuration and golden.net1 is None]
HOST = {"railnet.io/network-mode": "host"}


@pytest.fixture(scope="module")
def ports(host_pods: int) -> range:
    """The range of the chart; a wider one where more pods than half of it are made, since the ports of ended pods rest."""
    return range(min(20000, LAST + 1 - 2 * host_pods), LAST + 1)


@pytest.fixture(scope="module")
def cluster(server: ApiServer, ports: range, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    options = [f"--host-ports={ports[0]}-{ports[-1]}"]
    with Cluster(server, VALUES, tmp_path_factory.mktemp("replicas"), 2, options) as found:
        found.namespace(NAMESPACE, None)
        for replica in found.replicas:
            assert made(server.api.create("/api/v1/namespaces/railnet/pods", own_pod(replica.pod)))
        wait_until_listed(found)
        yield found
        server.api.delete("/api/v1/namespaces/railnet/pods?gracePeriodSeconds=0")
        server.api.delete(f"/api/v1/namespaces/{NAMESPACE}")


def wait_until_listed(cluster: Cluster) -> None:
    """Wait until both replicas have: until then they refuse. Connections alternate, so ten pods in a row say it of both."""
    wait_until(lambda: all(made(dry(cluster, a_pod("listed"))) for _ in range(10)), 60, "the pods to be listed")


def own_pod(name: str) -> JsonObject:
    metadata = {"name": name, "labels": {"app.kubernetes.io/name": "railnet-admission"}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }


def a_pod(name: str, annotations: JsonObject = HOST, labels: JsonObject = KUBEFLOW) -> JsonObject:
    ports = [{"name": "tensorboard", "containerPort": 6006}, {"name": "tfjob-port", "containerPort": 2222}]
    container = {"name": "tensorflow", "image": "registry.example/train:1", "ports": ports}
    metadata = {"name": name, "labels": labels, "annotations": annotations}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}}


def path(kind: str, *, dry_run: bool = False) -> str:
    return f"/api/v1/namespaces/{NAMESPACE}/{kind}{'?dryRun=All' * dry_run}"


def dry(cluster: Cluster, pod: JsonObject) -> ApiAnswer:
    return cluster.server.api.create(path("pods", dry_run=True), pod)


def made(answer: ApiAnswer) -> bool:
    return answer.status == http.client.CREATED


def job(name: str, index: int = 0) -> JsonObject:
    return {**KUBEFLOW, "training.kubeflow.org/job-name": name, "training.kubeflow.org/replica-index": str(index)}


def the_service(labels: JsonObject, name: str) -> JsonObject:
    found = a_service(labels)
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "labels": labels}, "spec": found["spec"]}


@pytest.mark.parametrize("golden", IN_MODE, ids=lambda golden: golden.name)
def test_server_stores_a_golden_pod_with_a_port_of_the_range(cluster: Cluster, ports: range, golden: Golden) -> None:
    pod = copy.deepcopy(golden.pod)
    metadata = {key: value for key, value in pod["metadata"].items() if key not in ("namespace", "ownerReferences")}
    answer = dry(cluster, {**pod, "metadata": metadata})

    if "denied" in golden.expected:
        assert answer.status == http.client.BAD_REQUEST
        assert answer.message.endswith(golden.expected["denied"].partition(": ")[2])
        return
    assert made(answer), answer.message
    spec = answer.object["spec"]
    if not any(one["path"] == "/spec/hostNetwork" for one in golden.expected["patch"]):
        assert spec["containers"][0]["ports"] == [
            {"protocol": "TCP", **port} for port in pod["spec"]["containers"][0]["ports"]
        ]
        return
    number = int(answer.object["metadata"]["annotations"]["railnet.io/host-port"])
    numbers = [
        (port["containerPort"], port.get("hostPort")) for one in spec["containers"] for port in one.get("ports", ())
    ]
    assert (spec["hostNetwork"], spec["dnsPolicy"]) == (True, "ClusterFirstWithHostNet")
    assert number in ports
    assert (number, number) in numbers


def a_large_pod(name: str, labels: JsonObject) -> JsonObject:
    pod = a_pod(name, labels=labels)
    pod["spec"]["containers"][0]["env"] = [
        {"name": f"TRAIN_OPTION_{number:02}", "value": f"a value of some length, as there are in jobs: {number:02}"}
        for number in range(POD_BYTES // 100)
    ]
    return pod


def at_once(cluster: Cluster, send: Callable[[Api, int], ApiAnswer], numbers: Iterable[int]) -> list[ApiAnswer]:
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


@pytest.fixture(scope="module")
def many(cluster: Cluster, host_pods: int, measured: Callable[[str], None]) -> Iterator[list[ApiAnswer]]:
    """The API server's answers to many pods that are made at the same moment."""
    began = time.monotonic()
    answers = at_once(
        cluster,
        lambda api, number: api.create(path("pods"), a_large_pod(f"many-{number}", job("many", number))),
        range(host_pods),
    )
    measured(f"{host_pods} pods in host-network mode at the same time: made in {time.monotonic() - began:.1f} s")
    yield answers
    at_once(
        cluster,
        lambda api, number: api.send("DELETE", f"{path('pods')}/many-{number}?gracePeriodSeconds=0"),
        range(host_pods),
    )


def given(answers: Iterable[ApiAnswer]) -> list[int]:
    return [int(answer.object["metadata"]["annotations"]["railnet.io/host-port"]) for answer in answers]


def test_pods_that_are_made_at_the_same_moment_have_ports_of_their_own(
    many: list[ApiAnswer], ports: range, measured: Callable[[str], None]
) -> None:
    assert {answer.status for answer in many} == {http.client.CREATED}, [one for one in many if not made(one)][:3]
    found = set(given(many))
    measured(f"{len(many)} pods: {len(found)} ports, by two replicas")
    assert len(found) == len(many)
    assert found <= set(ports)


def test_replica_that_starts_beside_many_pods_gives_no_port_of_theirs(
    cluster: Cluster, many: list[ApiAnswer], measured: Callable[[str], None]
) -> None:
    replica = cluster.replicas[0]
    measured(f"webhook beside {len(many)} such pods, which it saw come: {replica.used()}")
    replica.stop()
    began = time.monotonic()
    replica.start()
    replica.wait()
    ready = time.monotonic() - began
    wait_until(lambda: asked(replica)["allowed"], 60, "the pods to be listed")
    measured(
        f"… started anew: ready in {ready:.1f} s, all pods listed in {time.monotonic() - began:.1f} s, {replica.used()}"
    )
    after = [port_of(asked(replica)) for _ in range(20)]

    assert len(set(after)) == len(after)
    assert set(after).isdisjoint(given(many))


def asked(replica: Replica) -> JsonObject:
    """Return the response of one replica to a review."""
    answer: JsonObject = replica.review(a_review(a_pod("after"), NAMESPACE))["response"]
    return answer


def port_of(response: JsonObject) -> int:
    (annotations,) = (one["value"] for one in patch_of(response) if "host-port" in one["path"])
    return int(annotations)


def test_service_of_a_pod_in_the_mode_forwards_to_the_named_port(cluster: Cluster) -> None:
    """The pod comes first, and both replicas see it."""
    labels = job("forwards")
    assert made(cluster.server.api.create(path("pods"), a_pod("forwards-worker-0", labels=labels)))

    answer = cluster.server.api.create(path("services"), the_service(labels, "forwards-worker-0"))

    assert made(answer), answer.message
    assert answer.object["spec"].get("clusterIP") != "None"
    (port,) = answer.object["spec"]["ports"]
    assert (port["port"], port["targetPort"]) == (2222, "tfjob-port")


def test_service_of_a_pod_in_its_own_network_stays_headless(cluster: Cluster) -> None:
    labels = job("headless")
    assert made(cluster.server.api.create(path("pods"), a_pod("headless-worker-0", {}, labels)))

    answer = cluster.server.api.create(path("services"), the_service(labels, "headless-worker-0"))

    assert made(answer), answer.message
    assert answer.object["spec"]["clusterIP"] == "None"
    assert answer.object["spec"]["ports"][0]["targetPort"] == 2222


def test_service_before_its_pod_is_refused_and_made_when_it_is_tried_again(cluster: Cluster) -> None:
    labels = job("early")
    before = cluster.server.api.create(path("services"), the_service(labels, "early-worker-0"))
    assert made(cluster.server.api.create(path("pods"), a_pod("early-worker-0", labels=labels)))
    after = cluster.server.api.create(path("services"), the_service(labels, "early-worker-0"))

    assert before.status == http.client.SERVICE_UNAVAILABLE
    assert "its operator makes the pod first" in before.message.lower()
    assert made(after)


def test_other_services_cause_no_call(cluster: Cluster) -> None:
    before = cluster.calls()
    answers = [
        cluster.server.api.create(path("services", dry_run=True), the_service(labels, "web"))
        for labels in ({"app": "web"}, {key: KUBEFLOW[key] for key in list(KUBEFLOW)[1:]})
    ]

    assert [made(answer) for answer in answers] == [True, True], [answer.message for answer in answers]
    assert (cluster.calls() - before).total() == 0
