"""The webhook of gangs: which pods the API server asks `railnet admission --gangs` about, and what they become.

Pods are created as dry runs: they go through admission, and are not stored. What a gated pod may become is in test_gangs.
"""

import copy
import http.client
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from railnet.jobs.gang.recogniser import names_gang
from railnet.objects.pod import parse
from tests.cluster.chart import GANGS
from tests.cluster.process import wait_until
from tests.control_plane.cluster import TRAINING, UNWATCHED, Cluster, essence
from tests.control_plane.gang_cluster import SECONDS
from tests.control_plane.server import ApiServer
from tests.railnet.admission.goldens import GOLDENS
from tests.railnet.admission.reviewing import applied, patch_of
from tests.railnet.admission.test_gang_goldens import FILES, answered

JsonObject = dict[str, Any]
NAMESPACE, OFF = "gangs", "gangs-off"
ENTRY = "gangs.railnet.io"
GATE = {"name": "railnet.io/gang"}
# Pods that only the review of gangs concerns: a known operator's pod gets a rail, too.
ALONE = {name: golden for name, golden in FILES.items() if not name.startswith("kubedl")}


@pytest.fixture(scope="module")
def cluster(server: ApiServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(server, GANGS, tmp_path_factory.mktemp("replica"), options=["--gangs"]) as found:
        found.namespace(NAMESPACE, None)
        server.namespace(OFF, {"railnet.io/gang": "off"})
        yield found


def gates(found: Cluster, pod: JsonObject, namespace: str = NAMESPACE) -> list[JsonObject]:
    answer = found.create(pod, namespace)
    assert answer.status == http.client.CREATED, answer.message
    return answer.object["spec"].get("schedulingGates") or []


def calls(found: Cluster, about: Callable[[], object]) -> Counter[str]:
    before = found.calls()
    about()
    return found.calls() - before


@pytest.mark.parametrize("golden", ALONE.values(), ids=ALONE.keys())
def test_golden_pod_of_a_gang_becomes_what_the_decision_says(cluster: Cluster, golden: JsonObject) -> None:
    decided = answered(golden["pod"])
    answer = cluster.create(golden["pod"], NAMESPACE)

    if not decided["allowed"]:
        assert answer.status == 400
        assert answer.message.endswith(f'"{ENTRY}" denied the request: {decided["status"]["message"]}')
        return
    # The API server sets its own defaults in the patched pod, too. The namespace is out of scope, so the webhook is not called.
    expected = cluster.create(applied(golden["pod"], patch_of(decided)), UNWATCHED)
    assert (answer.status, expected.status) == (201, 201), answer.message
    assert essence(answer) == essence(expected)
    assert answer.warnings == decided.get("warnings", [])


@pytest.mark.parametrize("name", ["kubedl-coscheduler", "kubedl-topology"])
def test_pod_with_a_rail_and_a_gang_gets_both_and_is_asked_about_at_most_four_times(
    cluster: Cluster, name: str
) -> None:
    pod = FILES[name]["pod"]
    made: list[JsonObject] = []
    asked = calls(cluster, lambda: made.append(cluster.create(pod, NAMESPACE).object))

    (found,) = made
    assert found["spec"]["schedulingGates"] == [GATE]
    assert found["spec"]["containers"][0]["resources"]["limits"]["rdma/ib_vf"] == "1"
    explained = found["metadata"]["annotations"]["railnet.io/explain"]
    assert explained.startswith("worker 2 of mnist (KubeDL)")
    assert explained.endswith("behind the scheduling gate railnet.io/gang")
    assert asked.keys() == {"recognised.railnet.io", ENTRY}
    assert asked.total() <= 4


def test_pods_without_a_gang_cause_the_calls_that_they_cause_without_gangs(cluster: Cluster) -> None:
    others = [golden.pod for golden in GOLDENS if golden.configuration is None and golden.net1 is None]
    without = [pod for pod in others if not names_gang(parse(pod))]
    assert len(without) > 20

    def create() -> None:
        for pod in without:
            cluster.create(pod, NAMESPACE)
        cluster.create(FILES["article-annotation-only"]["pod"], NAMESPACE)
        cluster.create(FILES["volcano-scheduler"]["pod"], NAMESPACE)

    asked = calls(cluster, create)
    assert asked
    assert ENTRY not in asked


def test_namespace_that_is_off_causes_no_call(cluster: Cluster) -> None:
    pod = FILES["article-job"]["pod"]

    wait_until(lambda: gates(cluster, pod, OFF) == [], SECONDS, "the plugins know the namespace's label")
    assert calls(cluster, lambda: gates(cluster, pod, OFF)) == Counter()
    assert gates(cluster, pod) == [GATE]


def test_gate_that_an_author_wrote_without_a_gang_is_removed(cluster: Cluster) -> None:
    pod = copy.deepcopy(FILES["article-labels-only"]["pod"])
    pod["metadata"]["labels"] = {"app": "web"}
    pod["spec"]["schedulingGates"] = [{"name": "example.com/quota"}, GATE]

    answer = cluster.create(pod, NAMESPACE)

    assert answer.object["spec"]["schedulingGates"] == [{"name": "example.com/quota"}]
    assert answer.warnings[0].startswith("the scheduling gate railnet.io/gang is removed")


def test_no_condition_failed(cluster: Cluster) -> None:
    """With failurePolicy: Ignore, a condition that cannot be evaluated would let gangs start in parts."""
    assert gates(cluster, FILES["koordinator"]["pod"]) == [GATE]
    assert cluster.metric("apiserver_admission_match_condition_evaluation_errors_total") == []


def test_largest_pod_stays_below_the_cost_limit_of_conditions(cluster: Cluster) -> None:
    pod = copy.deepcopy(FILES["koordinator"]["pod"])
    pod["metadata"]["annotations"] |= {f"annotation-{number}": "x" * 8 for number in range(9000)}
    pod["spec"]["containers"] += [{"name": f"idle-{number}", "image": "i"} for number in range(200)]

    assert gates(cluster, pod) == [GATE]


def test_without_the_webhook_a_gangs_pod_is_made_and_does_not_wait(cluster: Cluster) -> None:
    cluster.stop()
    try:
        gang = gates(cluster, FILES["article-job"]["pod"])
        rail = cluster.create(TRAINING.pod, NAMESPACE)
        known = cluster.create(FILES["kubedl-topology"]["pod"], NAMESPACE)
    finally:
        cluster.start()

    assert gang == []
    assert (rail.status, known.status) == (500, 500)
    wait_until(lambda: gates(cluster, FILES["article-job"]["pod"]) == [GATE], SECONDS, "the webhook is back")
