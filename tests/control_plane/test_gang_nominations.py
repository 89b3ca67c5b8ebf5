"""The real scheduler keeps the place of a gang for its pods, from before their gates are removed until they are bound.

The pods of a gang are nominated for their nodes (`status.nominatedNodeName`), and a policy permits the controllers nothing else of a status.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.manifests import NAMESPACE
from tests.cluster.process import wait_until
from tests.control_plane.api import ApiAnswer, JsonObject
from tests.control_plane.controllers import NAME, Controllers
from tests.control_plane.gang_cluster import (
    GATE,
    SECONDS,
    STRANGERS,
    events,
    gating,
    is_gated,
    leader,
    leaf,
    leaves_of,
    nodes_of,
    required,
    runs,
)
from tests.control_plane.gang_jobs import GangJob
from tests.control_plane.nodes import Nodes
from tests.control_plane.proxy import ApiProxy
from tests.control_plane.server import ApiServer

_ORDINARY = f"/api/v1/namespaces/{STRANGERS}/pods"
_GUARDED = "nominated"
_POLICY = "ValidatingAdmissionPolicy 'railnet-gangs' with binding 'railnet-gangs' denied request: "


@pytest.fixture(scope="module")
def files(server: ApiServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with gating(server, tmp_path_factory.mktemp("webhook")):
        yield tmp_path_factory.mktemp("controllers")


@pytest.fixture(scope="module")
def replica(server: ApiServer, files: Path) -> Iterator[Controllers]:
    with ApiProxy(server.api) as proxy, leader(server, files, proxy) as found:
        yield found


def ordinary(server: ApiServer, count: int) -> None:
    """Create pods of no gang, for which the scheduler finds nodes."""
    server.namespace(STRANGERS)
    amounts = {"rdma/ib_vf": "1"}
    container = {"name": "main", "image": "i", "resources": {"requests": amounts, "limits": amounts}}
    for number in range(count):
        body = {"metadata": {"name": f"ordinary-{number}"}, "spec": {"containers": [container]}}
        answer = server.api.create(_ORDINARY, body)
        assert answer.status == 201, answer.message


def bound(server: ApiServer) -> int:
    """Return how many pods of no gang the scheduler has bound; it binds several at once, and the first need not be done first."""
    return sum("nodeName" in pod["spec"] for pod in server.api.items(_ORDINARY))


def are_ungated(job: GangJob) -> bool:
    pods = job.pods()
    return len(pods) == job.count and not any(map(is_gated, pods))


def test_pods_that_the_scheduler_sees_first_do_not_take_the_place_of_a_gang(
    server: ApiServer, replica: Controllers, nodes: Nodes
) -> None:
    """They are older, so the scheduler looks at them first, when it is back."""
    nodes.create([*leaf("one", 2, 2), *leaf("two", 2, 2)])
    server.plane.scheduler.stop()
    try:
        ordinary(server, 8)
        with GangJob(server, "reserved", 4, required()) as job:
            wait_until(lambda: are_ungated(job), SECONDS, "four pods without a gate")
            seats = sorted(pod["status"]["nominatedNodeName"] for pod in job.pods())
            server.plane.scheduler.start()
            wait_until(lambda: runs(job), SECONDS, "four pods to run")

            assert sorted(nodes_of(job).elements()) == seats
            assert (len(leaves_of(job)), job.made()) == (1, 4)
            assert events(server, job)["GangEvicted"] == 0
            wait_until(lambda: bound(server) >= 4, SECONDS, "the other pods to have the rest")
            assert bound(server) == 4
    finally:
        if server.plane.scheduler.process is None:
            server.plane.scheduler.start()


def a_pod(server: ApiServer, name: str, gate: str) -> str:
    """Create a pod that waits behind a gate; return its path."""
    server.namespace(_GUARDED)
    path = f"/api/v1/namespaces/{_GUARDED}/pods"
    spec: JsonObject = {"containers": [{"name": "main", "image": "i"}], "schedulingGates": [{"name": gate}]}
    answer = server.api.create(path, {"metadata": {"name": name}, "spec": spec})
    assert answer.status == 201, answer.message
    return f"{path}/{name}"


def patch_status(server: ApiServer, path: str, status: JsonObject, token: str) -> ApiAnswer:
    return server.api.merge(f"{path}/status", {"status": status}, token)


@pytest.fixture(scope="module")
def token(server: ApiServer, files: Path) -> str:
    """Return a token of the controllers when the policy is in force."""
    account = server.token(NAMESPACE, NAME)
    waiting = a_pod(server, "waiting", "example.com/other")
    wait_until(
        lambda: _POLICY in patch_status(server, waiting, {"nominatedNodeName": "one-0"}, account).message,
        SECONDS,
        "the policy to be in force",
    )
    return account


def test_controllers_may_change_nothing_of_a_status_but_the_nomination(
    server: ApiServer, files: Path, token: str
) -> None:
    gated = _gated_by_the_webhook(server)

    assert patch_status(server, gated, {"nominatedNodeName": "one-0"}, token).status == 200
    assert patch_status(server, gated, {"nominatedNodeName": None}, token).status == 200
    for change in ({"podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}]}, {"phase": "Running"}, {"conditions": None}):
        answer = patch_status(server, gated, change, token)
        assert answer.message.endswith("nothing of a pod's status but nominatedNodeName may be changed"), change


def test_controllers_annotate_pods_through_their_status(server: ApiServer, files: Path, token: str) -> None:
    """So they write sticky addresses, of pods that never had a gate."""
    other = a_pod(server, "other", "example.com/other")
    patch = {"metadata": {"annotations": {"example.com/a": "b"}}}
    answer = server.api.merge(f"{other}/status", patch, token)

    assert (answer.status, answer.message) == (200, "")


def _gated_by_the_webhook(server: ApiServer) -> str:
    """Create a pod of a gang, whose gate only the webhook may add; return its path."""
    path = f"/api/v1/namespaces/{_GUARDED}/pods"
    labels = {"pod-group.scheduling.sigs.k8s.io/name": "guarded", "pod-group.scheduling.sigs.k8s.io/min-available": "9"}
    body = {
        "metadata": {"name": "guarded", "labels": labels},
        "spec": {"containers": [{"name": "main", "image": "i"}]},
    }
    answer = server.api.create(path, body)
    assert answer.status == 201, answer.message
    assert {"name": GATE} in answer.object["spec"]["schedulingGates"]
    return f"{path}/guarded"
