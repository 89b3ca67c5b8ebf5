"""Host-network mode with two replicas of the webhook: pods and Services as the API server stores them."""

import copy
import http.client
from collections.abc import Iterator
from typing import Any

import pytest

from tests.control_plane.api import ApiAnswer
from tests.control_plane.cluster import Cluster
from tests.control_plane.host_ports import (
    PORTS,
    a_pod,
    created,
    dry,
    given,
    job,
    many_pods,
    next_port,
    path,
    two_replicas,
    wait_until_listed,
    with_host_ports,
)
from tests.control_plane.server import ApiServer
from tests.railnet.admission.goldens import GOLDENS, Golden
from tests.railnet.admission.host_network.test_service_review import KUBEFLOW, a_service

JsonObject = dict[str, Any]
IN_MODE = [golden for golden in GOLDENS if golden.host_port and not golden.configuration and golden.net1 is None]


@pytest.fixture(scope="module")
def cluster(server: ApiServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with two_replicas(server, tmp_path_factory.mktemp("replicas")) as replicas:
        yield replicas


def the_service(labels: JsonObject, name: str) -> JsonObject:
    found = a_service(labels)
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "labels": labels}, "spec": found["spec"]}


@pytest.mark.parametrize("golden", IN_MODE, ids=lambda golden: golden.name)
def test_server_stores_a_golden_pod_with_a_port_of_the_range(cluster: Cluster, golden: Golden) -> None:
    pod = copy.deepcopy(golden.pod)
    metadata = {key: value for key, value in pod["metadata"].items() if key not in ("namespace", "ownerReferences")}
    answer = dry(cluster, {**pod, "metadata": metadata})

    if "denied" in golden.expected:
        assert answer.status == http.client.BAD_REQUEST
        assert answer.message.endswith(golden.expected["denied"].partition(": ")[2])
        return
    assert created(answer), answer.message
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
    assert number in PORTS
    assert (number, number) in numbers


def test_dry_runs_leave_their_ports_free(cluster: Cluster) -> None:
    """Each replica answers with the port that it would give next."""
    answers = [dry(cluster, a_pod("tried")) for _ in range(40)]

    assert len(set(given(answers))) < 10


def test_pods_that_declare_all_host_ports_take_none_from_jobs(cluster: Cluster) -> None:
    api = cluster.server.api
    names = [f"hostile-{first}" for first in range(20000, 30000, 2500)]
    for name, first in zip(names, range(20000, 30000, 2500), strict=True):
        assert created(api.create(path("pods"), with_host_ports(name, range(first, first + 2500))))
    labels = job("unharmed")
    pods = [api.create(path("pods"), a_pod("unharmed-worker-0", labels=labels))]
    # Both replicas see the pods in order, and a Service is not made before the replica has seen its pod.
    services = [api.create(path("services"), the_service(labels, f"unharmed-{number}")) for number in range(10)]
    pods += [
        api.create(path("pods"), a_pod(f"unharmed-worker-{index}", labels=job("unharmed", index)))
        for index in range(1, 20)
    ]
    for name in names:
        api.send("DELETE", f"{path('pods')}/{name}?gracePeriodSeconds=0")

    assert [answer.message for answer in (*pods, *services) if not created(answer)] == []
    assert len(set(given(pods))) == len(pods)


@pytest.fixture(scope="module")
def many(cluster: Cluster) -> Iterator[list[ApiAnswer]]:
    """The API server's answers to many pods that are made at the same moment."""
    with many_pods(cluster, 200) as answers:
        yield answers


def test_pods_that_are_made_at_the_same_moment_have_ports_of_their_own(many: list[ApiAnswer]) -> None:
    assert {answer.status for answer in many} == {http.client.CREATED}, [one for one in many if not created(one)][:3]
    assert len(set(given(many))) == len(many)
    assert set(given(many)) <= set(PORTS)


def test_replica_that_starts_beside_many_pods_gives_no_port_of_theirs(cluster: Cluster, many: list[ApiAnswer]) -> None:
    replica = cluster.replicas[0]
    replica.stop()
    replica.start()
    replica.wait()
    wait_until_listed(replica)
    after = [next_port(replica) for _ in range(20)]

    assert len(set(after)) == len(after)
    assert set(after).isdisjoint(given(many))


def test_service_of_a_pod_in_the_mode_forwards_to_the_named_port(cluster: Cluster) -> None:
    """The pod comes first, and both replicas see it."""
    labels = job("forwards")
    assert created(cluster.server.api.create(path("pods"), a_pod("forwards-worker-0", labels=labels)))

    answer = cluster.server.api.create(path("services"), the_service(labels, "forwards-worker-0"))

    assert created(answer), answer.message
    assert answer.object["spec"].get("clusterIP") != "None"
    (port,) = answer.object["spec"]["ports"]
    assert (port["port"], port["targetPort"]) == (2222, "tfjob-port")


def test_service_of_a_pod_in_its_own_network_stays_headless(cluster: Cluster) -> None:
    labels = job("headless")
    assert created(cluster.server.api.create(path("pods"), a_pod("headless-worker-0", {}, labels)))

    answer = cluster.server.api.create(path("services"), the_service(labels, "headless-worker-0"))

    assert created(answer), answer.message
    assert answer.object["spec"]["clusterIP"] == "None"
    assert answer.object["spec"]["ports"][0]["targetPort"] == 2222


def test_service_before_its_pod_is_refused_and_made_when_it_is_tried_again(cluster: Cluster) -> None:
    labels = job("early")
    before = cluster.server.api.create(path("services"), the_service(labels, "early-worker-0"))
    assert created(cluster.server.api.create(path("pods"), a_pod("early-worker-0", labels=labels)))
    after = cluster.server.api.create(path("services"), the_service(labels, "early-worker-0"))

    assert before.status == http.client.SERVICE_UNAVAILABLE
    assert "its operator makes the pod first" in before.message.lower()
    assert created(after)


def test_other_services_cause_no_call(cluster: Cluster) -> None:
    before = cluster.calls()
    answers = [
        cluster.server.api.create(path("services", dry_run=True), the_service(labels, "web"))
        for labels in ({"app": "web"}, {key: KUBEFLOW[key] for key in list(KUBEFLOW)[1:]})
    ]

    assert [created(answer) for answer in answers] == [True, True], [answer.message for answer in answers]
    assert (cluster.calls() - before).total() == 0
