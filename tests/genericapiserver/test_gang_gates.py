"""`railnet admission --gangs` in a new API server: whose pods wait for nothing, and run as they did without it.

Which pods are asked about, and what they become, is in test_gang_webhook.
"""

from collections.abc import Iterator

import pytest

from tests.cluster.process import wait_until
from tests.genericapiserver.api import Api, JsonObject
from tests.genericapiserver.cluster import Cluster
from tests.genericapiserver.gang_cluster import (
    LEAF,
    PLACEMENT,
    SECONDS,
    clear,
    gating,
    is_gated,
    leaf,
    probe,
    required,
    runs,
)
from tests.genericapiserver.server import ApiServer
from tests.genericapiserver.stand_in_jobs import JobController
from tests.genericapiserver.stand_in_nodes import Kubelets, Nodes, node
from tests.genericapiserver.stand_in_scheduler import Scheduler
from tests.stand_ins.gang_job import GangJob

FIVE = {"worker": 5}
UNGATED = "ungated"


@pytest.fixture(scope="module")
def webhook(server: ApiServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with gating(server, tmp_path_factory.mktemp("webhook")) as found:
        yield found


@pytest.fixture
def nodes(server: ApiServer) -> Iterator[Nodes]:
    yield Nodes(server.api)
    clear(server)


def plain(api: Api, name: str) -> JsonObject:
    made = api.create("/api/v1/namespaces/ungated/pods", {"metadata": {"name": name}, "spec": {"containers": []}})
    assert made.status == 201, made.message
    return made.object


def test_pod_without_a_gang_is_never_asked_about(server: ApiServer, webhook: Cluster, nodes: Nodes) -> None:
    server.api.create("/api/v1/namespaces", {"metadata": {"name": "ungated"}})
    nodes.create([node("a")])
    before = webhook.calls()
    with Scheduler(server), Kubelets(server):
        served = plain(server.api, "served")
        webhook.stop()
        try:
            down = plain(server.api, "down")
            path = "/api/v1/namespaces/ungated/pods"
            wait_until(
                lambda: [one["status"]["phase"] for one in server.api.get(path).object["items"]] == ["Running"] * 2,
                SECONDS,
                "both pods to run",
            )
        finally:
            webhook.start()

    assert (is_gated(served), is_gated(down)) == (False, False)
    assert webhook.calls() == before


def test_namespace_that_is_off_has_no_gates(server: ApiServer, webhook: Cluster, nodes: Nodes) -> None:
    off = {"name": "gangs-off", "labels": {"railnet.io/gang": "off"}}
    server.api.create("/api/v1/namespaces", {"metadata": off})
    nodes.create(leaf("leaf", 1, 5))
    with Scheduler(server), Kubelets(server), JobController(server, GangJob("gangs-off", FIVE), required()) as jobs:
        wait_until(lambda: runs(jobs), SECONDS, "five pods to run")
        assert all(PLACEMENT not in one["metadata"].get("annotations", {}) for one in jobs.pods())
        assert all(LEAF not in one["spec"].get("nodeSelector", {}) for one in jobs.pods())


def test_pod_of_a_gang_on_an_older_kubernetes_is_left_alone_and_a_warning_says_why(
    server: ApiServer, webhook: Cluster
) -> None:
    (replica,) = webhook.replicas
    webhook.stop()
    replica.start(module="tests.genericapiserver.admission_with_older_server")
    try:
        replica.wait()
        wait_until(lambda: probe(server.api).warnings != [], SECONDS, "the webhook to be asked")
        answer = probe(server.api)
    finally:
        webhook.stop()
        webhook.start()

    assert not is_gated(answer.object)
    assert answer.warnings == [
        "the pod does not wait for its gang: this is Kubernetes 1.26, and gangs need 1.27 or newer, where a pod can wait behind a gate and get its nodes afterwards"
    ]
