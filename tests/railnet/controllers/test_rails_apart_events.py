"""The event on a job whose pods do not reach each other, against an API server in memory."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from railnet.apiserver.client import RequestFailed, StreamingApiServer
from railnet.apiserver.event import Event
from railnet.apiserver.request import Collection
from railnet.controllers.events import JobEvents
from railnet.controllers.informer import Informer
from railnet.controllers.job_pods import JobPods
from railnet.controllers.owners import Owners
from railnet.controllers.rails_apart_events import RailsApartEvents
from railnet.controllers.shared_pod_watch import alone
from railnet.controllers.training_pod import Job, training_pod
from railnet.fabric.published_reach import KEY, NAME, NAMESPACE, config_map
from railnet.objects.network_status import ANNOTATION
from tests.railnet.controllers.builders import ROOT, JsonObject, pod
from tests.railnet.controllers.cluster_in_memory import Cluster, Refusal

REACH = f"/api/v1/namespaces/{NAMESPACE}/configmaps/{NAME}"
APART = config_map({frozenset({0, 1}): False}, datetime(2026, 11, 27, tzinfo=UTC))
JOINED = config_map({frozenset({0, 1}): True}, datetime(2026, 11, 28, tzinfo=UTC))


class Leader:
    """A leader without threads: `look` lists the pods and reconciles the job, at a time that a test sets."""

    def __init__(self, cluster: Cluster) -> None:
        api = StreamingApiServer(cluster, lambda: "a-token", "test")
        self.now = 100.0
        self.events: list[Event] = []
        pods = JobPods()
        events = JobEvents(self.events.append, lambda: self.now)  # type: ignore[arg-type]
        self.apart = RailsApartEvents(api, pods, Owners(api), events, lambda: self.now)
        self._pods: Informer[Any] = Informer(api, Collection("v1", "pods"), alone(training_pod), pods.change)

    def look(self, seconds: float = 0.0) -> float | None:
        self.now += seconds
        self._pods._list()
        return self.apart.reconcile(Job("ml", "mnist"))


def on_rail(name: str, rail: int, **fields: Any) -> JsonObject:
    networks = [{"name": "railnet/default", "interface": "net1", "ips": [f"10.56.{rail}.9"], "rail": rail}]
    return pod(name, annotations={ANNOTATION: json.dumps(networks)}, **fields)


def add(cluster: Cluster, found: JsonObject) -> None:
    cluster.put(f"/api/v1/namespaces/ml/pods/{found['metadata']['name']}", found)


@pytest.fixture
def cluster() -> Cluster:
    made = Cluster()
    metadata = {"namespace": "ml", "name": "mnist", "uid": "uid-of-mnist", "creationTimestamp": "2026-01-01T12:00:00Z"}
    made.put("/apis/batch/v1/namespaces/ml/jobs/mnist", {"metadata": metadata})
    add(made, on_rail("w-0", 0))
    add(made, on_rail("w-1", 1))
    made.put(REACH, APART)
    return made


def test_job_is_told_once_that_its_pods_do_not_reach_each_other(cluster: Cluster) -> None:
    leader = Leader(cluster)
    again = [leader.look(), leader.look(60), leader.look(60)]

    (event,) = leader.events
    assert (event.about.kind, event.about.name, event.reason, event.type) == ("Job", "mnist", "RailsApart", "Warning")
    assert event.text.startswith("pods w-0 (rail 0) and w-1 (rail 1) do not reach each other over net1")
    assert again == [60.0] * 3


def test_event_is_written_again_before_the_cluster_has_forgotten_it_for_long(cluster: Cluster) -> None:
    leader = Leader(cluster)
    leader.look()
    leader.look(3601)

    assert len(leader.events) == 2


@pytest.mark.parametrize("published", [JOINED, {**APART, "data": {KEY: "{}"}}, None])
def test_job_is_not_told_what_is_not_known(cluster: Cluster, published: JsonObject | None) -> None:
    cluster.remove(REACH)
    if published is not None:
        cluster.put(REACH, published)
    leader = Leader(cluster)

    assert (leader.look(), leader.events) == (60.0, [])


def test_what_is_published_later_is_seen_within_two_minutes(cluster: Cluster) -> None:
    cluster.remove(REACH)
    leader = Leader(cluster)
    leader.look()
    cluster.put(REACH, APART)
    leader.look(61)

    assert len(leader.events) == 1
    assert cluster.requests["get configmaps"] == 2


def test_unreadable_publication_is_logged_once(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    cluster.put(REACH, {**APART, "data": {KEY: "{}"}})
    leader = Leader(cluster)
    leader.look()
    leader.look(61)

    assert caplog.text.count("is not as `railnet validate --publish` writes it") == 1


@pytest.mark.parametrize(
    "other",
    [on_rail("w-1", 0), on_rail("w-1", 1, phase="Failed"), on_rail("w-1", 1, node=""), on_rail("w-1", 1, job="other")],
    ids=["same rail", "ended", "without a node", "of another job"],
)
def test_nothing_is_asked_for_a_job_of_like_rails(cluster: Cluster, other: JsonObject) -> None:
    add(cluster, other)
    leader = Leader(cluster)

    assert (leader.look(), leader.events) == (None, [])
    assert cluster.requests["get configmaps"] == 0


def test_pods_of_two_jobs_of_one_name_are_not_compared(cluster: Cluster) -> None:
    """An operator's labels name the job alone: the jobs are told from each other by what owns their pods."""
    for number in (0, 1):
        root = ROOT | {"name": f"root-{number}", "uid": f"uid-{number}"}
        metadata = {
            "namespace": "ml",
            "name": root["name"],
            "uid": root["uid"],
            "creationTimestamp": "2026-01-01T13:00:00Z",
        }
        cluster.put(f"/apis/batch/v1/namespaces/ml/jobs/root-{number}", {"metadata": metadata})
        worker = on_rail(f"w-{number}", number, root=root)
        labels = {
            "training.kubeflow.org/job-name": "mnist",
            "training.kubeflow.org/operator-name": "pytorchjob-controller",
            "training.kubeflow.org/replica-type": "worker",
            "training.kubeflow.org/replica-index": "0",
        }
        add(cluster, {**worker, "metadata": {**worker["metadata"], "labels": labels}})
    leader = Leader(cluster)

    assert (leader.look(), leader.events) == (60.0, [])


def test_leader_that_may_not_read_what_is_published_says_nothing(cluster: Cluster) -> None:
    def refuse(request: Any) -> None:
        if request.about.resource == "configmaps":
            raise Refusal(403)

    cluster.interfere = refuse
    leader = Leader(cluster)

    assert (leader.look(), leader.events) == (60.0, [])


def test_failure_of_the_api_server_is_tried_again(cluster: Cluster) -> None:
    def refuse(request: Any) -> None:
        if request.about.resource == "configmaps":
            raise Refusal(503)

    cluster.interfere = refuse
    leader = Leader(cluster)
    with pytest.raises(RequestFailed):
        leader.look()
    cluster.interfere = lambda request: None
    leader.look()

    assert len(leader.events) == 1
