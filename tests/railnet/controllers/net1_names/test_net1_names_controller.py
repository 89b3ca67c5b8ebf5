"""The controller of names on net1, against an API server in memory: what it writes, and what it leaves alone."""

import copy
import threading
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from railnet.apiserver.client import Conflict, RequestFailed, StreamingApiServer
from railnet.apiserver.event import Event
from railnet.apiserver.request import Collection, Request, Verb
from railnet.controllers.events import JobEvents
from railnet.controllers.informer import Informer
from railnet.controllers.job_pods import JobPods
from railnet.controllers.net1_names import wanted_net1_records
from railnet.controllers.net1_names.net1_names_controller import Net1Services
from railnet.controllers.owners import Owners
from railnet.controllers.shared_pod_watch import alone
from railnet.controllers.training_pod import Job, training_pod
from railnet.jobs.reported_pod import ReportedPod
from railnet.vf.permitted_networks import Networks
from tests.railnet.controllers.builders import ROOT, JsonObject, pod
from tests.railnet.controllers.cluster_in_memory import Cluster, Refusal
from tests.waiting import until

JOB = Job("ml", "mnist")
SERVICE = "/api/v1/namespaces/ml/services/mnist-net1"
_WRITES = (Verb.CREATE, Verb.PATCH, Verb.DELETE)


class Died(Exception):
    """The leader's process ended in the middle of a request."""


class Leader:
    """A leader without threads: `look` brings it up to date, and reconciles each job that has changed."""

    def __init__(self, cluster: Cluster) -> None:
        api = StreamingApiServer(cluster, lambda: "a-token", "test")
        self.now = 100.0
        self.events: list[Event] = []
        self.pods = JobPods()
        events = JobEvents(self.events.append)  # type: ignore[arg-type]
        self.names = Net1Services(api, self.pods, Owners(api), events, Networks(), lambda: self.now)
        self._informers: list[Informer[Any]] = [
            Informer(api, Collection("v1", "pods"), alone(training_pod), self.pods.change),
            *self.names.informers,
        ]

    def hear(self) -> None:
        """List everything, as a leader that has just begun or whose watch is too old."""
        for informer in self._informers:
            informer._list()

    def look(self) -> float | None:
        self.hear()
        again = self.names.reconcile(JOB)
        self.hear()
        return again

    @property
    def said(self) -> list[tuple[str, str]]:
        return [(f"{one.about}", one.text) for one in self.events]


def a_job(cluster: Cluster, name: str = "mnist", created: str = "2026-01-01T12:00:00Z") -> JsonObject:
    """Create the root object of pods, and return the reference to it."""
    metadata = {"namespace": "ml", "name": name, "uid": f"uid-of-{name}", "creationTimestamp": created}
    cluster.put(f"/apis/batch/v1/namespaces/ml/jobs/{name}", {"metadata": metadata})
    return ROOT | {"name": name, "uid": f"uid-of-{name}"}


def add(cluster: Cluster, found: JsonObject) -> None:
    cluster.put(f"/api/v1/namespaces/ml/pods/{found['metadata']['name']}", found)


@pytest.fixture
def cluster() -> Cluster:
    made = Cluster()
    a_job(made)
    add(made, pod("mnist-worker-0", "10.56.0.1"))
    add(made, pod("mnist-worker-1", "10.56.0.2", node="node-b"))
    return made


def essence(found: Iterable[JsonObject]) -> list[JsonObject]:
    """Return objects without what the API server itself gives them."""
    return [
        {
            **one,
            "metadata": {key: part for key, part in one["metadata"].items() if key not in ("uid", "resourceVersion")},
        }
        for one in found
    ]


def writes(cluster: Cluster) -> dict[str, int]:
    verbs = {verb.right for verb in _WRITES}
    return {what: count for what, count in cluster.requests.items() if what.split()[0] in verbs}


def test_job_gets_one_headless_service_and_one_slice_owned_by_its_root(cluster: Cluster) -> None:
    Leader(cluster).look()
    labels = {"railnet.io/names": "job", "railnet.io/job": "mnist", "service.kubernetes.io/headless": ""}
    metadata = {
        "namespace": "ml",
        "annotations": {"railnet.io/job": "mnist"},
        "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "mnist", "uid": "uid-of-mnist"}],
    }

    assert essence(cluster.of("services")) == [
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "mnist-net1", "labels": labels, **metadata},
            "spec": {
                "clusterIP": "None",
                "type": "ClusterIP",
                "publishNotReadyAddresses": True,
                "selector": None,
                "ports": None,
                "externalIPs": None,
            },
        }
    ]
    of_slice = {"kubernetes.io/service-name": "mnist-net1", "endpointslice.kubernetes.io/managed-by": "railnet.io"}
    assert essence(cluster.of("endpointslices")) == [
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {"name": "mnist-net1-0", "labels": labels | of_slice, **metadata},
            "addressType": "IPv4",
            "endpoints": [endpoint(0, "node-a"), endpoint(1, "node-b")],
            "ports": [],
        }
    ]
    assert writes(cluster) == {"create services": 1, "create endpointslices": 1}


def endpoint(number: int, node: str) -> JsonObject:
    name = f"mnist-worker-{number}"
    return {
        "addresses": [f"10.56.0.{number + 1}"],
        "conditions": {"ready": True},
        "hostname": name,
        "nodeName": node,
        "targetRef": {"kind": "Pod", "namespace": "ml", "name": name, "uid": f"uid-of-{name}"},
    }


def test_nothing_is_written_while_nothing_changes(cluster: Cluster) -> None:
    leader = Leader(cluster)
    leader.look()
    before = writes(cluster)
    leader.look()
    Leader(cluster).look()

    assert writes(cluster) == before


def test_leader_knows_what_it_wrote_before_the_watch_reports_it(cluster: Cluster) -> None:
    leader = Leader(cluster)
    leader.hear()
    again = [leader.names.reconcile(JOB) for _ in range(2)]

    assert writes(cluster) == {"create services": 1, "create endpointslices": 1}
    assert again == [10.0, 10.0]
    leader.hear()
    assert leader.names.reconcile(JOB) is None


def test_what_was_written_and_is_never_reported_is_made_again(cluster: Cluster) -> None:
    """It was deleted before an informer that lists again could see it."""
    leader = Leader(cluster)
    leader.hear()
    assert leader.names.reconcile(JOB) == 10.0
    cluster.remove(SERVICE)
    leader.hear()
    leader.now += 10.0
    leader.names.reconcile(JOB)

    assert len(cluster.of("services")) == 1


def test_changed_address_changes_one_slice_and_no_service(cluster: Cluster) -> None:
    leader = Leader(cluster)
    leader.look()
    add(cluster, pod("mnist-worker-1", "10.56.9.9"))
    leader.look()

    assert cluster.of("endpointslices")[0]["endpoints"][1]["addresses"] == ["10.56.9.9"]
    assert writes(cluster) == {"create services": 1, "create endpointslices": 1, "patch endpointslices": 1}


@pytest.mark.parametrize("how", ["ended", "gone"])
def test_names_go_with_the_last_member(cluster: Cluster, how: str) -> None:
    leader = Leader(cluster)
    leader.look()
    for number in (0, 1):
        name = f"mnist-worker-{number}"
        if how == "gone":
            cluster.remove(f"/api/v1/namespaces/ml/pods/{name}")
        else:
            add(cluster, pod(name, f"10.56.0.{number + 1}", phase="Succeeded"))
    leader.look()

    assert cluster.of("services") == cluster.of("endpointslices") == []


def test_job_without_a_rail_costs_no_request() -> None:
    cluster = Cluster()
    add(cluster, pod("mnist-worker-0"))
    leader = Leader(cluster)
    leader.hear()
    before = sum(cluster.requests.values())
    leader.names.reconcile(JOB)

    assert sum(cluster.requests.values()) == before


def strip(found: JsonObject) -> None:
    found["metadata"]["labels"].pop("kubernetes.io/service-name", None)
    found["metadata"]["labels"].pop("service.kubernetes.io/headless", None)


def own(found: JsonObject) -> None:
    found["metadata"]["ownerReferences"].append({"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "x"})


def select(found: JsonObject) -> None:
    found["spec"] = {**found["spec"], "selector": {"app": "other"}}


def forward(found: JsonObject) -> None:
    found["spec"] = {**found["spec"], "ports": [{"name": "ssh", "port": 22, "targetPort": 22}]}


def call_from_outside(found: JsonObject) -> None:
    found["spec"] = {**found["spec"], "externalIPs": ["8.8.8.8"]}


def hide(found: JsonObject) -> None:
    found["spec"] = {**found["spec"], "publishNotReadyAddresses": False}


def unready(found: JsonObject) -> None:
    found["endpoints"][0]["conditions"] = {"ready": False}


def readdress(found: JsonObject) -> None:
    found["endpoints"][0]["addresses"] = ["10.1.1.1", "10.1.1.2"]


def open_ports(found: JsonObject) -> None:
    found["ports"] = [{"name": "", "port": 80}]


@pytest.mark.parametrize("address", ["10.96.0.1", "8.8.8.8"])
def test_pod_that_names_an_address_of_no_network_has_no_name_and_its_peers_keep_theirs(
    cluster: Cluster, address: str
) -> None:
    add(cluster, pod("mnist-hostile", address))
    leader = Leader(cluster)
    leader.look()

    (of_slice,) = cluster.of("endpointslices")
    assert [one["addresses"] for one in of_slice["endpoints"]] == [["10.56.0.1"], ["10.56.0.2"]]
    ((about, text),) = leader.said
    assert about == "Pod ml/mnist-hostile"
    assert f"address {address} is in no range of network 'default', which has: 10.56.0.0/16" in text


def test_pod_that_has_an_address_of_no_network_from_now_on_loses_its_name(cluster: Cluster) -> None:
    leader = Leader(cluster)
    leader.look()
    add(cluster, pod("mnist-worker-1", "10.96.0.1", node="node-b"))
    leader.now += 1
    leader.look()

    (of_slice,) = cluster.of("endpointslices")
    assert [one["addresses"] for one in of_slice["endpoints"]] == [["10.56.0.1"]]


def test_job_whose_pods_all_name_addresses_of_no_network_has_ten_events_and_no_service() -> None:
    cluster = Cluster()
    a_job(cluster)
    for number in range(30):
        add(cluster, pod(f"mnist-worker-{number}", f"8.8.8.{number + 1}"))
    leader = Leader(cluster)
    leader.look()

    assert (cluster.of("services"), len(leader.said)) == ([], 10)


@pytest.mark.parametrize(
    ("resource", "edit"),
    [
        ("services", own),
        ("services", select),
        ("services", forward),
        ("services", call_from_outside),
        ("services", hide),
        ("endpointslices", own),
        ("endpointslices", unready),
        ("endpointslices", readdress),
        ("endpointslices", open_ports),
    ],
)
def test_edited_object_is_corrected(cluster: Cluster, resource: str, edit: Callable[[JsonObject], None]) -> None:
    leader = Leader(cluster)
    leader.look()
    before = essence(cluster.of(resource))
    path = next(path for path in cluster.objects if f"/{resource}/" in path)
    edited = copy.deepcopy(cluster.objects[path])
    edit(edited)
    cluster.put(path, edited)
    leader.look()

    assert [without_nulls(one) for one in essence(cluster.of(resource))] == [without_nulls(one) for one in before]


def without_nulls(found: Any) -> Any:
    """A merge patch takes away what is null; the object was created with a null."""
    return (
        {key: without_nulls(part) for key, part in found.items() if part is not None}
        if isinstance(found, dict)
        else found
    )


LONG: dict[str, Callable[[JsonObject], None]] = {
    "job": lambda document: document["metadata"]["annotations"].update({"railnet.io/job": "x" * 250_000}),
    "owner": lambda document: document["metadata"].update({"ownerReferences": [ROOT | {"name": "x" * 1_000_000}]}),
    "endpoints": lambda document: document.update({"endpoints": [an_endpoint(number) for number in range(1000)]}),
    "addresses": lambda document: document.update({"endpoints": [an_endpoint(0) | {"addresses": ["10.0.0.1"] * 9999}]}),
}


def an_endpoint(number: int) -> JsonObject:
    return {
        "addresses": [f"10.56.{number // 250}.{number % 250}"],
        "targetRef": {"name": f"p-{number}" * 9, "uid": "u"},
    }


@pytest.mark.parametrize("edit", LONG.values(), ids=LONG)
def test_of_a_service_or_slice_of_any_size_little_is_kept(cluster: Cluster, edit: Callable[[JsonObject], None]) -> None:
    """Sixty Services, which any author of Services may label as ours, took all of the controllers' memory."""
    leader = Leader(cluster)
    leader.look()
    for resource in ("services", "endpointslices"):
        path = next(path for path in cluster.objects if f"/{resource}/" in path)
        edited = copy.deepcopy(cluster.objects[path])
        edit(edited)
        cluster.put(path, edited)
    leader.hear()
    kept = [repr(one) for informer in leader.names.informers for one in informer.all()]

    assert sum(map(len, kept)) < 24 << 10


def test_slice_with_more_records_than_are_kept_is_corrected(cluster: Cluster) -> None:
    leader = Leader(cluster)
    leader.look()
    (before,) = essence(cluster.of("endpointslices"))
    path = next(path for path in cluster.objects if "/endpointslices/" in path)
    edited = copy.deepcopy(cluster.objects[path])
    edited["endpoints"] += [an_endpoint(number) for number in range(500)]
    cluster.put(path, edited)
    leader.look()

    assert essence(cluster.of("endpointslices")) == [before]


@pytest.mark.parametrize("resource", ["services", "endpointslices"])
def test_deleted_object_is_made_again(cluster: Cluster, resource: str) -> None:
    leader = Leader(cluster)
    leader.look()
    cluster.remove(next(path for path in cluster.objects if f"/{resource}/" in path))
    leader.look()

    assert (len(cluster.of("services")), len(cluster.of("endpointslices"))) == (1, 1)


def test_service_of_another_owner_is_not_touched_and_an_event_says_what_to_do(cluster: Cluster) -> None:
    theirs = {"metadata": {"namespace": "ml", "name": "mnist-net1", "labels": {}}, "spec": {"clusterIP": "10.0.0.9"}}
    there = cluster.put(SERVICE, theirs)
    leader = Leader(cluster)
    again = leader.look()
    so = "so pods of job mnist have no names on net1"

    assert cluster.objects[SERVICE] == there
    assert cluster.of("endpointslices") == []
    assert leader.said == [
        (
            "Job ml/mnist",
            f"services/mnist-net1 in namespace ml exists and is not Railnet's, {so}; delete or rename it, or rename the job",
        )
    ]
    assert again == 60.0


def test_service_that_lost_railnets_label_loses_its_slices(cluster: Cluster) -> None:
    leader = Leader(cluster)
    leader.look()
    theirs = copy.deepcopy(cluster.objects[SERVICE])
    del theirs["metadata"]["labels"]["railnet.io/names"]
    cluster.put(SERVICE, theirs)
    leader.look()

    assert cluster.of("endpointslices") == []
    assert len(leader.said) == 1


def test_names_of_the_task_are_made_on_request(cluster: Cluster) -> None:
    add(cluster, pod("mnist-worker-0", "10.56.0.1", rank=0, annotations={"railnet.io/names": "task"}))
    leader = Leader(cluster)
    leader.look()
    slices = {one["metadata"]["name"]: one["endpoints"] for one in cluster.of("endpointslices")}

    assert [one["metadata"]["name"] for one in cluster.of("services")] == ["mnist-net1", "mnist-worker-0"]
    assert ["hostname" in one for one in slices["mnist-worker-0-0"]] == [False]
    cluster.remove("/api/v1/namespaces/ml/pods/mnist-worker-0")
    leader.look()
    assert [one["metadata"]["name"] for one in cluster.of("services")] == ["mnist-net1"]


def test_service_of_another_job_is_not_taken_over(cluster: Cluster) -> None:
    """A task's Service may have the name that another job's Service needs."""
    other = {"railnet.io/names": "task", "railnet.io/job": "other"}
    metadata = {"namespace": "ml", "name": "mnist-net1", "labels": other, "annotations": {"railnet.io/job": "other"}}
    there = cluster.put(SERVICE, {"metadata": metadata, "spec": {"clusterIP": "None"}})
    leader = Leader(cluster)
    leader.look()

    assert cluster.objects[SERVICE] == there
    assert len(leader.said) == 1


@pytest.mark.parametrize("role", ["master", "zebra"])  # their pods come before and after those of the other job
def test_of_two_jobs_of_one_name_the_older_keeps_it(cluster: Cluster, role: str) -> None:
    keys = {"training.kubeflow.org/job-name": "mnist", "training.kubeflow.org/replica-type": role}
    kubeflow = keys | {"training.kubeflow.org/operator-name": "pytorchjob-controller"}
    older = a_job(cluster, "older", "2025-01-01T12:00:00Z")
    add(cluster, pod(f"mnist-{role}-0", "10.56.0.3", root=older, labels=kubeflow))
    leader = Leader(cluster)
    leader.look()
    (found,) = cluster.of("endpointslices")
    so = "so the pods of this job have no names on net1"

    assert [one["hostname"] for one in found["endpoints"]] == [f"mnist-{role}-0"]
    assert found["metadata"]["ownerReferences"][0]["name"] == "older"
    assert leader.said == [
        (
            "Job ml/mnist",
            f"Job ml/older is older and has the name mnist too, {so}; rename one of the two jobs",
        )
    ]
    cluster.remove(f"/api/v1/namespaces/ml/pods/mnist-{role}-0")
    leader.look()
    assert [one["hostname"] for one in cluster.of("endpointslices")[0]["endpoints"]] == [
        "mnist-worker-0",
        "mnist-worker-1",
    ]


def test_job_whose_pods_name_hundreds_of_owners_costs_few_requests_in_each_look(cluster: Cluster) -> None:
    """Each look asked for the age of each: jobs of one tenant kept all workers, and the names of others waited."""
    for number in range(200):
        owner = ROOT | {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "name": f"of-{number}", "uid": f"u-{number}"}
        labels = {"training.kubeflow.org/job-name": "mnist", "training.kubeflow.org/replica-type": "worker"}
        labels |= {"training.kubeflow.org/operator-name": "tfjob-controller"}
        made = {"creationTimestamp": "2026-02-01T00:00:00Z"}
        add(cluster, pod(f"p-{number}", "10.56.1.1", root=owner, labels=labels, metadata=made))
    leader = Leader(cluster)
    leader.look()
    before = cluster.requests.copy()
    leader.look()

    assert sum((cluster.requests - before).values()) < 40
    assert len(leader.said) == 10


def test_job_of_several_roots_is_one_job_without_an_owner(cluster: Cluster) -> None:
    add(cluster, pod("mnist-worker-1", "10.56.0.2", root=a_job(cluster, "mnist-b")))
    leader = Leader(cluster)
    leader.look()

    assert [one["metadata"]["ownerReferences"] for one in cluster.of("services")] == [[]]
    assert len(cluster.of("endpointslices")[0]["endpoints"]) == 2
    assert leader.said == []


def test_templates_with_an_object_for_each_task_are_one_job() -> None:
    cluster = Cluster()
    for task in range(2):
        labels = {"name": "mnist", "job": "worker", "task": str(task)}
        found = pod(f"mnist-worker-{task}-x", f"10.56.0.{task + 1}", root=a_job(cluster, f"mnist-worker-{task}"))
        found["metadata"]["labels"] = labels
        found["spec"]["containers"] = [{"name": "tensorflow"}]
        add(cluster, found)
    leader = Leader(cluster)
    leader.look()

    assert len(cluster.of("endpointslices")[0]["endpoints"]) == 2
    assert leader.said == []


def test_name_that_no_service_can_have_is_an_event_on_the_root() -> None:
    cluster = Cluster()
    a_job(cluster)
    add(cluster, pod("w-0", "10.56.0.1", job="2nd.try"))
    leader = Leader(cluster)
    leader.hear()
    leader.names.reconcile(Job("ml", "2nd.try"))

    assert [(about, text.split(";")[1]) for about, text in leader.said] == [("Job ml/mnist", " rename the job")]
    assert writes(cluster) == {}


def test_nothing_is_made_for_pods_that_all_leave(cluster: Cluster) -> None:
    """Their root may be gone, and what it owns is then deleted as often as it is made."""
    leaving = {"deletionTimestamp": "2026-01-01T12:00:00Z"}
    for number in (0, 1):
        add(cluster, pod(f"mnist-worker-{number}", f"10.56.0.{number + 1}", metadata=leaving))
    Leader(cluster).look()

    assert writes(cluster) == {}


@pytest.mark.parametrize("status", [409, 410, 429, 500, 503])
def test_failed_write_is_raised_and_the_next_look_does_it(cluster: Cluster, status: int) -> None:
    leader = Leader(cluster)
    refuse_once(cluster, "endpointslices", status)
    with pytest.raises(RequestFailed) as raised:
        leader.look()
    leader.names.reconcile(JOB)

    assert raised.value.status == (
        404 if status == 409 else status
    )  # of a conflict, the controller looks what is there
    assert len(cluster.of("endpointslices")[0]["endpoints"]) == 2


def refuse_once(cluster: Cluster, resource: str, status: int) -> None:
    left = [status]

    def interfere(request: Request) -> None:
        if request.verb is Verb.CREATE and request.about.resource == resource and left:
            raise Refusal(left.pop())

    cluster.interfere = interfere


def test_lost_answer_of_a_create_does_no_harm(cluster: Cluster) -> None:
    leader = Leader(cluster)
    left = ["services", "endpointslices"]

    def lose(request: Request) -> None:
        if request.verb is Verb.CREATE and request.about.resource in left:
            left.remove(request.about.resource)
            raise OSError("reset")

    cluster.answered = lose
    for _ in range(2):
        with pytest.raises(RequestFailed):
            leader.names.reconcile(JOB) if leader.pods.jobs() else leader.look()
    leader.names.reconcile(JOB)

    assert (len(cluster.of("services")), len(cluster.of("endpointslices"))) == (1, 1)


def test_slice_that_changed_since_it_was_read_is_not_overwritten(cluster: Cluster) -> None:
    leader = Leader(cluster)
    leader.look()
    path = next(path for path in cluster.objects if "/endpointslices/" in path)
    cluster.put(path, {**cluster.objects[path], "endpoints": []})
    leader.pods.change(None, training_pod(ReportedPod(pod("mnist-worker-2", "10.56.0.3"))))
    with pytest.raises(Conflict):
        leader.names.reconcile(JOB)
    assert cluster.of("endpointslices")[0]["endpoints"] == []
    leader.look()

    assert len(cluster.of("endpointslices")[0]["endpoints"]) == 3


def test_changes_that_come_close_together_are_one_write(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    leader = Leader(cluster)
    asked: list[tuple[Job, float]] = []
    monkeypatch.setattr(leader.names.queue, "add", lambda job, seconds: asked.append((job, seconds)))
    leader.look()
    asked.clear()
    leader.now += 0.05
    leader.pods.change(None, training_pod(ReportedPod(pod("mnist-worker-2", "10.56.0.3"))))
    leader.now += 10.0
    leader.pods.change(None, training_pod(ReportedPod(pod("mnist-worker-3", "10.56.0.4"))))

    assert asked == [(JOB, pytest.approx(0.45)), (JOB, pytest.approx(0.1))]


# What happens to a job: pods that come with an address, go, end; and the write at which a leader dies, before or after it is done.
STEP = st.tuples(
    st.sampled_from(["come", "go", "end"]),
    st.integers(0, 11),
    st.integers(0, 3),
    st.sampled_from(["before", "after", "never"]),
)


@pytest.mark.slow
@given(st.lists(STEP, min_size=1, max_size=12))
def test_leaders_that_die_at_any_write_leave_the_same_objects(steps: list[tuple[str, int, int, str]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wanted_net1_records, "_MOST_RECORDS", 3)
        mortal, immortal = Cluster(), Cluster()
        for one in (mortal, immortal):
            a_job(one)
        for what, number, write, when in steps:
            for one in (mortal, immortal):
                happen(one, what, number)
            die(mortal, write, when)
            survive(mortal)
            Leader(immortal).look()

            assert essence(mortal.of("services")) == essence(immortal.of("services"))
            assert essence(mortal.of("endpointslices")) == essence(immortal.of("endpointslices"))


def happen(cluster: Cluster, what: str, number: int) -> None:
    """Change three pods at once, so that several slices change."""
    for at in (number, (number + 5) % 12, (number + 7) % 12):
        name = f"w-{at}"
        path = f"/api/v1/namespaces/ml/pods/{name}"
        if what == "go":
            cluster.objects.pop(path, None)
        else:
            task = {"railnet.io/names": "task"} if at % 4 == 0 else {}
            phase = "Running" if what == "come" else "Succeeded"
            add(cluster, pod(name, f"10.56.0.{at + 1}", f"fd00::{at + 1}", rank=at, annotations=task, phase=phase))


def die(cluster: Cluster, write: int, when: str) -> None:
    """Have the leader die before or after a write is done."""
    left = [write]

    def count(request: Request) -> None:
        if request.verb in _WRITES:
            left[0] -= 1
            if left[0] < 0:
                raise Died

    never = lambda request: None  # noqa: E731
    cluster.interfere, cluster.answered = (count if when == "before" else never), (count if when == "after" else never)


def survive(cluster: Cluster) -> None:
    """Run leaders, each of which begins anew, until one lives."""
    try:
        Leader(cluster).look()
    except Died:
        cluster.interfere = cluster.answered = lambda request: None
        Leader(cluster).look()
    cluster.interfere = cluster.answered = lambda request: None


@pytest.mark.slow
def test_watch_that_is_cut_or_too_old_loses_nothing(cluster: Cluster) -> None:
    """With the informers' own threads: each watch ends after milliseconds, and some begin at a version that is forgotten."""
    leader, ended = Leader(cluster), threading.Event()
    threads = [threading.Thread(target=informer.run, args=(ended,)) for informer in leader._informers]
    for thread in threads:
        thread.start()
    for informer in leader._informers:
        assert informer.listed.wait(10)
    for number in range(2, 40):
        add(cluster, pod(f"mnist-worker-{number}", f"10.56.0.{number + 1}"))
        if number % 8 == 0:
            cluster.compact()
    # Each watch that ends at once is followed by a pause, which grows up to half a minute on a busy machine.
    until(lambda: len(leader.pods.of(JOB)) == 40, 120, "all pods to be known")
    leader.names.reconcile(JOB)
    ended.set()
    for thread in threads:
        thread.join()

    assert len(cluster.of("endpointslices")[0]["endpoints"]) == 40


def contested(cluster: Cluster, leader: Leader, resource: str, edit: Callable[[JsonObject], None], looks: int) -> None:
    """Look, with something that changes an object back before each look."""
    for _ in range(looks):
        path, found = next(
            (path, copy.deepcopy(found)) for path, found in cluster.objects.items() if path.split("/")[-2] == resource
        )
        edit(found)
        cluster.put(path, found)
        leader.now += 1
        leader.look()


@pytest.mark.parametrize(("resource", "edit"), [("services", forward), ("endpointslices", open_ports)])
def test_object_that_is_changed_back_after_each_write_is_left_alone(
    cluster: Cluster, resource: str, edit: Callable[[JsonObject], None]
) -> None:
    leader = Leader(cluster)
    leader.look()
    contested(cluster, leader, resource, edit, 30)

    assert cluster.requests[f"patch {resource}"] == 9  # the tenth write is the one that made it
    assert leader.names.left_out == 21
    assert [(one.reason, f"{one.about}") for one in leader.events] == [("Net1NameLeftAlone", "Job ml/mnist")]
    assert "was written 10 times within 600 s" in leader.events[0].text
    assert len(cluster.of("services")) == len(cluster.of("endpointslices")) == 1


def test_object_that_is_left_alone_costs_no_other_object_its_writes(cluster: Cluster) -> None:
    leader = Leader(cluster)
    leader.look()
    contested(cluster, leader, "services", forward, 30)
    add(cluster, pod("mnist-worker-2", "10.56.0.3"))
    leader.now += 1
    leader.look()

    (of_slice,) = cluster.of("endpointslices")
    assert len(of_slice["endpoints"]) == 3


def test_object_that_was_left_alone_is_corrected_when_the_time_is_over(cluster: Cluster) -> None:
    leader = Leader(cluster)
    leader.look()
    contested(cluster, leader, "services", forward, 30)
    leader.now += 600
    leader.look()

    assert not cluster.objects[SERVICE]["spec"].get("ports")


def test_service_that_is_deleted_after_each_write_leaves_no_slice_behind(cluster: Cluster) -> None:
    """Its slices would belong to a Service of another owner that has its name from then on."""
    leader = Leader(cluster)
    leader.look()
    for _ in range(30):
        if SERVICE in cluster.objects:
            cluster.remove(SERVICE)
        leader.now += 1
        leader.look()

    assert cluster.requests["create services"] == 10
    assert cluster.of("endpointslices") == []


def test_writes_that_the_api_server_refuses_do_not_count(cluster: Cluster) -> None:
    leader = Leader(cluster)

    def refuse(request: Request) -> None:
        if request.verb is Verb.CREATE:
            raise Refusal(503)

    cluster.interfere = refuse
    for _ in range(30):
        with pytest.raises(RequestFailed):
            leader.look()
    cluster.interfere = lambda request: None
    leader.look()

    assert len(cluster.of("services")) == len(cluster.of("endpointslices")) == 1


def test_job_whose_members_come_and_go_is_written_each_time(cluster: Cluster) -> None:
    leader = Leader(cluster)
    for _ in range(30):
        leader.now += 1
        leader.look()
        add(cluster, pod("mnist-worker-0", "10.56.0.1", phase="Failed"))
        add(cluster, pod("mnist-worker-1", "10.56.0.2", phase="Failed"))
        leader.now += 1
        leader.look()
        assert cluster.of("services") == []
        add(cluster, pod("mnist-worker-0", "10.56.0.1"))
        add(cluster, pod("mnist-worker-1", "10.56.0.2", node="node-b"))
        leader.now += 1
        leader.look()
        assert len(cluster.of("services")) == len(cluster.of("endpointslices")) == 1

    assert (leader.names.left_out, leader.events) == (0, [])


def test_task_without_a_rank_costs_no_write_at_rest_and_is_refused_with_an_event() -> None:
    """Its Service had the name of the job's own, and each look wrote both."""
    cluster = Cluster()
    a_job(cluster)
    asks = {"annotations": {"railnet.io/names": "task"}, "labels": {"railnet.io/role": "net1"}}
    add(cluster, pod("mnist-worker-0", "10.56.0.1", **asks))
    leader = Leader(cluster)
    leader.look()
    before = writes(cluster)
    for _ in range(5):
        leader.now += 1
        leader.look()

    assert writes(cluster) == before == {"create services": 1, "create endpointslices": 1}
    ((about, text),) = leader.said
    assert about == "Pod ml/mnist-worker-0"
    assert "label each pod of the job railnet.io/rank, or remove the annotation" in text
