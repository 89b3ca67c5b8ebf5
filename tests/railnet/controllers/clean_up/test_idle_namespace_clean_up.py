"""The controller of training namespaces, against an API server in memory: when one goes, and what keeps it."""

from typing import Any

import pytest

from railnet.apiserver.client import RequestFailed, StreamingApiServer
from railnet.apiserver.event import Event
from railnet.apiserver.request import Collection, Request, Verb
from railnet.controllers.clean_up.idle_namespace_clean_up import NamespaceCleanUp
from railnet.controllers.events import JobEvents
from railnet.controllers.informer import Informer
from railnet.controllers.job_pods import JobPods
from railnet.controllers.shared_pod_watch import alone
from railnet.controllers.training_pod import training_pod
from tests.railnet.controllers.cluster_in_memory import Cluster, Refusal
from tests.railnet.controllers.template_job import NOW, JsonObject, TemplateJob, path

HOUR = 3600.0
AN_HOUR_AGO = "2026-03-01T11:00:00Z"
NAMESPACE = "/api/v1/namespaces/ml"


class Leader:
    """A leader without threads: `look` brings it up to date, and reconciles the namespace."""

    def __init__(self, cluster: Cluster, now: float = NOW) -> None:
        api = StreamingApiServer(cluster, lambda: "a-token", "test")
        self.now, self.cluster = now, cluster
        self.events: list[Event] = []
        self.pods = JobPods()
        events = JobEvents(self.events.append)  # type: ignore[arg-type]
        self.namespaces = NamespaceCleanUp(api, self.pods, events, lambda: self.now)
        pods = Informer(api, Collection("v1", "pods"), alone(training_pod), self.pods.change)
        self._informers: list[Informer[Any]] = [pods, self.namespaces.informer]

    def look(self, name: str = "ml") -> float | None:
        for informer in self._informers:
            informer._list()
        return self.namespaces.reconcile(name)

    @property
    def said(self) -> list[tuple[str, str, str]]:
        return [(str(one.about), one.reason, one.text) for one in self.events]


@pytest.fixture
def job() -> TemplateJob:
    """A finished job without parameter servers, in a namespace that goes a day after its end."""
    cluster = Cluster()
    cluster.groups |= {"apps": ["v1"], "batch": ["v1"], "kubeflow.org": ["v1"]}
    cluster.resources = {
        "/apis/apps/v1": ["deployments", "replicasets", "statefulsets"],
        "/apis/batch/v1": ["jobs", "jobs/status"],
        "/apis/kubeflow.org/v1": ["tfjobs", "tfjobs/status", "mpijobs"],
    }
    job = TemplateJob(cluster, workers=2, servers=0).make()
    label(cluster, **{"railnet.io/ttl": "24h"})
    for rank in range(2):
        end(job, rank)
    return job


def label(cluster: Cluster, value: str = "true", name: str = "ml", **annotations: str) -> None:
    metadata = {
        "name": name,
        "uid": f"uid-of-{name}",
        "labels": {"railnet.io/training-namespace": value},
        "annotations": annotations,
        "creationTimestamp": "2026-02-01T00:00:00Z",
    }
    cluster.put(f"/api/v1/namespaces/{name}", {"metadata": metadata})


def end(job: TemplateJob, rank: int) -> None:
    """End a worker an hour ago."""
    name = f"mnist-worker-{rank}"
    condition = {"type": "Complete", "status": "True", "lastTransitionTime": AN_HOUR_AGO}
    job._change(path("Job", name), {"conditions": [condition], "completionTime": AN_HOUR_AGO})
    terminated = {"state": {"terminated": {"finishedAt": AN_HOUR_AGO}}}
    job._change(path("Pod", f"{name}-x"), {"phase": "Succeeded", "containerStatuses": [terminated]})


def exists(cluster: Cluster) -> bool:
    return NAMESPACE in cluster.objects


def test_namespace_goes_when_its_time_is_over(job: TemplateJob) -> None:
    leader = Leader(job.cluster)

    assert leader.look() == 23 * HOUR
    leader.now += 23 * HOUR - 1
    assert leader.look() == 1.0
    assert exists(job.cluster)
    leader.now += 1
    assert leader.look() is None

    assert not exists(job.cluster)
    text = "nothing in it has gone on for 24h; deleted namespace ml"
    assert leader.said == [("Namespace ml", "NamespaceDeleted", text)]


def test_next_leader_reads_the_time_from_what_is_there(job: TemplateJob) -> None:
    assert Leader(job.cluster, NOW + 22 * HOUR).look() == HOUR
    Leader(job.cluster, NOW + 23 * HOUR).look()

    assert not exists(job.cluster)


def things_that_go_on() -> list[tuple[str, JsonObject]]:
    return [
        ("Pod", {"spec": {"containers": [{"name": "a"}]}, "status": {"phase": "Pending"}}),
        ("Job", {"spec": {"suspend": True, "template": {}}, "status": {}}),
        ("Deployment", {"spec": {"replicas": 0}}),
        ("StatefulSet", {"spec": {}}),
        ("ReplicaSet", {"spec": {}}),
        ("TFJob", {"spec": {}, "status": {"conditions": [{"type": "Suspended", "status": "True"}]}}),
    ]


@pytest.mark.parametrize(("kind", "fields"), things_that_go_on(), ids=lambda one: one if isinstance(one, str) else "")
def test_what_goes_on_keeps_it(job: TemplateJob, kind: str, fields: JsonObject) -> None:
    job.put(kind, "x", **fields)
    leader = Leader(job.cluster, NOW + 1000 * HOUR)

    assert leader.look() == 24 * HOUR
    assert exists(job.cluster)
    assert leader.events == []


def test_training_pod_that_goes_on_costs_no_request(job: TemplateJob) -> None:
    job._change(path("Pod", "mnist-worker-0-x"), {"phase": "Running"})
    leader = Leader(job.cluster, NOW + 1000 * HOUR)
    leader.look()

    assert set(job.cluster.requests) == {"list pods", "list namespaces"}


def test_objects_that_are_gone_do_not_shorten_the_time(job: TemplateJob) -> None:
    """A Job with `ttlSecondsAfterFinished` takes the time of its end with it."""
    job._change(path("Pod", "mnist-worker-0-x"), {"phase": "Running"})
    leader = Leader(job.cluster, NOW + 100 * HOUR)
    leader.look()
    for where in [where for where in job.cluster.objects if "/jobs/" in where or "/pods/" in where]:
        job.cluster.remove(where)
    leader.now += 10 * HOUR

    assert leader.look() == 24 * HOUR
    leader.now += 24 * HOUR
    leader.look()
    assert not exists(job.cluster)


def test_empty_namespace_lives_for_its_time_under_a_new_leader(job: TemplateJob) -> None:
    for where in [where for where in job.cluster.objects if where != NAMESPACE]:
        job.cluster.remove(where)
    leader = Leader(job.cluster, NOW + 100 * HOUR)

    assert leader.look() == 24 * HOUR
    assert exists(job.cluster)


@pytest.mark.parametrize("value", ["false", "True", ""])
def test_other_values_of_the_label_are_none(job: TemplateJob, value: str) -> None:
    label(job.cluster, value, **{"railnet.io/ttl": "1m"})
    leader = Leader(job.cluster, NOW + 1000 * HOUR)

    assert leader.look() is None
    assert exists(job.cluster)


def test_malformed_time_is_said_at_the_namespace(job: TemplateJob) -> None:
    label(job.cluster, **{"railnet.io/ttl": "a day"})
    leader = Leader(job.cluster, NOW + 1000 * HOUR)
    leader.look()

    assert exists(job.cluster)
    text = "railnet.io/ttl is 'a day'; it should be a number of seconds, minutes, hours or days, such as 30m, 24h or 7d"
    assert leader.said == [("Namespace ml", "NamespaceStays", text)]


def test_clusters_own_namespace_stays(job: TemplateJob) -> None:
    label(job.cluster, name="kube-node-lease", **{"railnet.io/ttl": "1m"})
    leader = Leader(job.cluster, NOW + 1000 * HOUR)
    leader.look("kube-node-lease")

    assert "/api/v1/namespaces/kube-node-lease" in job.cluster.objects
    assert leader.said[0][1] == "NamespaceStays"


def test_claims_keep_it_and_are_looked_for_again(job: TemplateJob) -> None:
    job.put("PersistentVolumeClaim", "data")
    leader = Leader(job.cluster, NOW + 23 * HOUR)
    assert leader.look() == 24 * HOUR
    assert exists(job.cluster)
    assert "1 PersistentVolumeClaims (data)" in leader.said[0][2]

    job.cluster.remove(path("PersistentVolumeClaim", "data"))
    leader.look()
    assert not exists(job.cluster)


def test_claims_go_with_it_where_it_says_so(job: TemplateJob) -> None:
    job.put("PersistentVolumeClaim", "data")
    label(job.cluster, **{"railnet.io/ttl": "24h", "railnet.io/delete-volumes": "true"})
    Leader(job.cluster, NOW + 23 * HOUR).look()

    assert not exists(job.cluster)


@pytest.mark.parametrize("change", [{}, {"uid": "another"}], ids=["changed", "made again"])
def test_namespace_that_has_changed_meanwhile_stays(job: TemplateJob, change: dict[str, str]) -> None:
    """Its author may just have removed the label."""

    def interfere(request: Request) -> None:
        if request.verb is Verb.DELETE:
            metadata = {"name": "ml", "labels": {}, **change}
            job.cluster.put(NAMESPACE, {"metadata": {**metadata}})

    job.cluster.interfere = interfere
    leader = Leader(job.cluster, NOW + 23 * HOUR)
    leader.look()

    assert exists(job.cluster)
    assert leader.events == []


@pytest.mark.parametrize("status", [403, 429, 500])
@pytest.mark.parametrize(
    "what", ["pods", "jobs", "deployments", "tfjobs", "persistentvolumeclaims", "apigroups", "namespaces"]
)
def test_what_cannot_be_seen_keeps_it(job: TemplateJob, status: int, what: str) -> None:
    leader = Leader(job.cluster, NOW + 23 * HOUR)
    for informer in leader._informers:
        informer._list()

    def refuse(request: Request) -> None:
        if request.about.resource == what:
            raise Refusal(status)

    job.cluster.interfere = refuse
    with pytest.raises(RequestFailed):
        leader.namespaces.reconcile("ml")

    assert exists(job.cluster)
    job.cluster.interfere = lambda request: None
    leader.look()
    assert not exists(job.cluster)


def test_changes_queue_the_namespace(job: TemplateJob) -> None:
    leader = Leader(job.cluster)
    leader.look()

    assert leader.namespaces.queue.get() == "ml"
    leader.namespaces.queue.done("ml")
    job._change(path("Pod", "mnist-worker-0-x"), {"phase": "Running"})
    leader.look()
    assert len(leader.namespaces.queue) == 1


def test_namespace_that_is_being_deleted_is_left_alone(job: TemplateJob) -> None:
    job.cluster.objects[NAMESPACE]["metadata"]["deletionTimestamp"] = AN_HOUR_AGO
    leader = Leader(job.cluster, NOW + 100 * HOUR)
    leader.look()

    assert job.cluster.requests["delete namespaces"] == 0
