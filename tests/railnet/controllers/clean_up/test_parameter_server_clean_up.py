"""The controller of parameter servers, against an API server in memory: what it deletes, what it leaves, and what it says."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from railnet.apiserver.client import RequestFailed, StreamingApiServer
from railnet.apiserver.event import Event
from railnet.apiserver.request import Collection, Request, Verb
from railnet.controllers.clean_up import parameter_server_jobs
from railnet.controllers.clean_up.parameter_server_clean_up import CleanUp
from railnet.controllers.clean_up.worker_jobs import worker_job
from railnet.controllers.events import JobEvents
from railnet.controllers.informer import Informer
from railnet.controllers.job_pods import JobPods
from railnet.controllers.owners import Owners
from railnet.controllers.shared_pod_watch import alone
from railnet.controllers.training_pod import Job, TrainingPod, training_pod
from railnet.jobs.clean_up.parameter_server_rule import TaskRange
from railnet.jobs.reported_pod import ReportedPod
from tests.railnet.controllers.cluster_in_memory import Cluster, Refusal
from tests.railnet.controllers.template_job import JUST_NOW, LONG_AGO, NOW, TemplateJob, owned_by, path

JOB = Job("ml", "mnist")
key = parameter_server_jobs._key
SERVERS = ["mnist-ps-0", "mnist-ps-1"]
FIVE = '{"cluster": {"ps": ["a:1", "b:1"], "worker": ["c:1", "d:1", "e:1"]}}'
TASKS = [*SERVERS, *(f"mnist-worker-{rank}" for rank in range(3))]


class Died(Exception):
    """The leader's process ended at a request."""


class Leader:
    """A leader without threads: `look` brings it up to date, and reconciles the job."""

    def __init__(self, cluster: Cluster, now: float = NOW) -> None:
        api = StreamingApiServer(cluster, lambda: "a-token", "test")
        self.now, self.cluster = now, cluster
        self.events: list[Event] = []
        self.pods = JobPods()
        self.clean_up = CleanUp(api, self.pods, Owners(api), JobEvents(self.events.append), lambda: self.now)  # type: ignore[arg-type]
        pods = Informer(api, Collection("v1", "pods"), alone(training_pod), self.pods.change)
        self._informers: list[Informer[Any]] = [pods, self.clean_up.informer]

    def look(self) -> float | None:
        for informer in self._informers:
            informer._list()
        return self.clean_up.reconcile(JOB)

    @property
    def said(self) -> list[tuple[str, str, str]]:
        return [(str(one.about), one.reason, one.text) for one in self.events]


@pytest.fixture
def job() -> TemplateJob:
    return TemplateJob(Cluster()).make()


@pytest.fixture
def leader(job: TemplateJob) -> Leader:
    return Leader(job.cluster)


def end_all(job: TemplateJob) -> None:
    for rank in range(job.workers):
        job.end(rank)


def test_parameter_servers_and_services_go_with_the_last_worker(job: TemplateJob, leader: Leader) -> None:
    for rank in range(3):
        leader.look()
        assert (job.left("Deployment"), job.left("Service")) == (SERVERS, TASKS)
        job.end(rank)

    assert leader.look() is None
    job.collect_garbage()

    assert (job.left("Deployment"), job.left("ReplicaSet"), job.left("Service")) == ([], [], [])
    assert (job.left("Job"), job.left("Pod")) == (TASKS[2:], [f"{name}-x" for name in TASKS[2:]])
    deleted = ", ".join([*(f"Service {name}" for name in TASKS), *(f"Deployment {name}" for name in SERVERS)])
    assert leader.said == [
        ("Job ml/mnist-worker-0", "ParameterServersDeleted", f"all 3 workers are complete; deleted {deleted}")
    ]


def test_nothing_is_requested_while_a_worker_goes_on(job: TemplateJob, leader: Leader) -> None:
    job.end(0)
    leader.look()
    leader.look()

    assert set(job.cluster.requests) == {"list pods", "list jobs"}


def test_failed_worker_keeps_them_and_an_event_says_so_once(job: TemplateJob, leader: Leader) -> None:
    job.end(0)
    job.end(1, "Failed")
    job.end(2)
    leader.look()
    leader.look()

    assert (job.left("Deployment"), job.left("Service")) == (SERVERS, TASKS)
    text = "the parameter servers of mnist stay: Job mnist-worker-1 failed; start the worker again, or delete the job"
    assert leader.said == [("Job ml/mnist-worker-0", "ParameterServersStay", text)]


def test_job_that_tries_a_failed_pod_again_has_not_failed(job: TemplateJob, leader: Leader) -> None:
    labels = {"name": "mnist", "job": "worker", "task": "2"}
    job.pod("mnist-worker-2-first", labels, "mnist-worker-2", owned_by("Job", "mnist-worker-2"), "Failed")
    end_all(job)
    leader.look()

    assert job.left("Deployment") == []


def test_succeeded_pod_is_not_enough_where_its_job_goes_on(job: TemplateJob, leader: Leader) -> None:
    end_all(job)
    job._change(path("Job", "mnist-worker-2"), {})
    leader.look()

    assert (job.left("Deployment"), leader.events) == (SERVERS, [])


def test_complete_job_without_pods_counts(job: TemplateJob, leader: Leader) -> None:
    end_all(job)
    job.cluster.remove(path("Pod", "mnist-worker-1-x"))
    leader.look()

    assert job.left("Deployment") == []


def test_job_without_a_pod_yet_is_not_complete(job: TemplateJob, leader: Leader) -> None:
    end_all(job)
    job._change(path("Job", "mnist-worker-1"), {})
    job.cluster.remove(path("Pod", "mnist-worker-1-x"))
    leader.look()

    assert job.left("Deployment") == SERVERS


@pytest.mark.parametrize("rank", range(3))
def test_missing_worker_keeps_them(job: TemplateJob, leader: Leader, rank: int) -> None:
    """The Service of the last worker says that it exists, where no other rank does."""
    end_all(job)
    job.cluster.remove(path("Job", f"mnist-worker-{rank}"))
    job.collect_garbage()
    leader.look()

    assert job.left("Deployment") == SERVERS
    assert f"worker {rank} is missing" in leader.said[0][2]


def test_job_in_the_making_is_waited_for() -> None:
    job = TemplateJob(Cluster(), workers=1)
    job.created = JUST_NOW
    for role, rank in job.tasks():
        job.make_task(role, rank, service=False)
    leader = Leader(job.cluster)
    job.end(0)

    assert leader.look() == 20.0
    leader.now += 20.0
    assert leader.look() is None
    assert job.left("Deployment") == []


def test_tf_config_says_how_many_workers_there_are() -> None:
    job = TemplateJob(Cluster(), workers=2)
    config = '{"cluster": {"ps": ["a:1", "b:1"], "worker": ["c:1", "d:1"]}}'
    job.created, job.env = JUST_NOW, [{"name": "TF_CONFIG", "value": config}]
    for role, rank in job.tasks():
        job.make_task(role, rank, service=False)
    leader = Leader(job.cluster)
    end_all(job)
    leader.look()

    assert job.left("Deployment") == []


def test_annotation_switches_it_off() -> None:
    job = TemplateJob(Cluster())
    job.annotations["railnet.io/ps-cleanup"] = "false"
    job.make()
    leader = Leader(job.cluster)
    end_all(job)
    leader.look()

    assert (job.left("Deployment"), leader.events) == (SERVERS, [])


def test_label_of_the_namespace_switches_it_off(job: TemplateJob, leader: Leader) -> None:
    labels = {"railnet.io/ps-cleanup": "false"}
    job.cluster.put("/api/v1/namespaces/ml", {"metadata": {"name": "ml", "labels": labels}})
    end_all(job)
    leader.look()

    assert (job.left("Deployment"), leader.events) == (SERVERS, [])


def test_objects_of_railnet_train_say_so_at_their_owner() -> None:
    job = TemplateJob(Cluster())
    job.owner = owned_by("ConfigMap", "mnist")
    job.make()
    leader = Leader(job.cluster)
    end_all(job)
    leader.look()

    assert job.left("Deployment") == []
    assert [one[:2] for one in leader.said] == [("ConfigMap ml/mnist", "ParameterServersDeleted")]


def test_owner_that_may_make_them_again_keeps_them() -> None:
    job = TemplateJob(Cluster())
    job.owner = {**owned_by("ConfigMap", "mnist"), "apiVersion": "example.org/v1", "kind": "Trainer"}
    job.make()
    leader = Leader(job.cluster)
    end_all(job)
    leader.look()

    assert (job.left("Deployment"), job.left("Service")) == (SERVERS, TASKS)
    assert "Trainer mnist owns Deployment mnist-ps-0, and may make it again" in leader.said[0][2]


def test_what_makes_the_pods_goes_whatever_its_kind(job: TemplateJob, leader: Leader) -> None:
    for rank in range(2):
        job.cluster.remove(path("Deployment", f"mnist-ps-{rank}"))
    job.collect_garbage()
    labels = {"name": "mnist", "job": "ps"}
    job.pod("bare", {**labels, "task": "0"}, "mnist-ps-0", None)
    for rank, kind in enumerate(("ReplicaSet", "StatefulSet", "Job"), start=1):
        task = {**labels, "task": str(rank)}
        job.put(kind, f"ps-{rank}", spec={"template": job._template("tensorflow", task)})
        job.pod(f"ps-{rank}-x", task, f"mnist-ps-{rank}", owned_by(kind, f"ps-{rank}"))
    end_all(job)
    leader.look()
    job.collect_garbage()

    assert job.left("ReplicaSet") == job.left("StatefulSet") == []
    assert job.left("Job") == TASKS[2:]
    assert [name for name in job.left("Pod") if "ps" in name or name == "bare"] == []


def test_other_jobs_and_their_services_stay(job: TemplateJob, leader: Leader) -> None:
    job.put("Service", "all-tasks", spec={"selector": {"name": "mnist"}})
    job.put("Service", "other", spec={"selector": {"name": "other", "job": "ps", "task": "0"}})
    job.put(
        "Service", "owned", owner=owned_by("TFJob", "x"), spec={"selector": {"name": "mnist", "job": "ps", "task": "0"}}
    )
    job.put("Service", "none", spec={})
    job.cluster.put(path("TFJob", "x"), {"metadata": {"name": "x", "namespace": "ml", "uid": "uid-of-TFJob-x"}})
    job.pod("other", {"name": "other", "job": "ps", "task": "0"}, "other-ps-0", None)
    end_all(job)
    leader.look()

    assert job.left("Service") == ["all-tasks", "none", "other", "owned"]
    assert "other" in job.left("Pod")


def test_parameter_server_that_was_made_again_by_the_same_name_stays(job: TemplateJob, leader: Leader) -> None:
    """Between the look and the request another one has taken the name: its UID is another."""
    end_all(job)

    def replace(request: Request) -> None:
        where = path("Deployment", "mnist-ps-1")
        if request.verb is Verb.DELETE and request.path == where:
            found = job.cluster.objects[where]
            found["metadata"]["uid"] = "another"

    job.cluster.interfere = replace
    leader.look()

    assert job.left("Deployment") == ["mnist-ps-1"]
    assert "Deployment mnist-ps-1" not in leader.said[0][2]


@pytest.mark.parametrize("state", ["leaving", "ended"])
def test_parameter_servers_that_are_gone_or_ended_are_left_alone(job: TemplateJob, leader: Leader, state: str) -> None:
    """An ended pod holds nothing but its log."""
    end_all(job)
    for rank in range(2):
        where = path("Pod", f"mnist-ps-{rank}-5d-x")
        if state == "ended":
            job._change(where, {"phase": "Failed"})
        else:
            job.cluster.objects[where]["metadata"]["deletionTimestamp"] = LONG_AGO
    leader.look()

    assert (job.left("Deployment"), leader.events) == (SERVERS, [])


def test_object_that_a_pod_only_says_it_belongs_to_stays(job: TemplateJob, leader: Leader) -> None:
    """The author of a pod may name any owner, also one that the author may not delete."""
    labels = {"name": "mnist", "job": "ps", "task": "7"}
    job.put("StatefulSet", "database", spec={"template": job._template("main", {"app": "database"})})
    job.pod("forged", labels, "mnist-ps-7", owned_by("StatefulSet", "database"))
    job.put("Deployment", "other-ps-0", spec={"template": job._template("other-ps-7", {**labels, "name": "other"})})
    job.pod("forged-too", labels, "mnist-ps-7", owned_by("Deployment", "other-ps-0"))
    end_all(job)
    leader.look()

    assert (job.left("StatefulSet"), job.left("Deployment")) == (["database"], ["other-ps-0"])


def test_pod_that_names_another_owner_by_the_uid_of_a_parameter_servers_deployment_keeps_none(
    job: TemplateJob, leader: Leader
) -> None:
    labels = {"name": "mnist", "job": "ps", "task": "7"}
    deployment = next(one for one in job.cluster.of("deployments") if one["metadata"]["name"] == "mnist-ps-0")
    forged = {**owned_by("Deployment", "no-such-object"), "uid": deployment["metadata"]["uid"]}
    job.pod("forged", labels, "mnist-ps-7", forged)
    end_all(job)
    leader.look()

    assert job.left("Deployment") == []


def test_owner_that_cannot_exist_keeps_the_pod(job: TemplateJob, leader: Leader) -> None:
    labels = {"name": "mnist", "job": "ps", "task": "7"}
    job.pod("forged", labels, "mnist-ps-7", {**owned_by("Deployment", "x"), "name": "../../secrets"})
    end_all(job)
    leader.look()

    assert "forged" in job.left("Pod")
    assert leader.said[0][1] == "ParameterServersStay"


@pytest.mark.slow
def test_changes_that_come_together_are_one_look(job: TemplateJob, leader: Leader) -> None:
    leader.look()
    end_all(job)
    leader.look()

    assert len(leader.clean_up.queue) == 1
    assert leader.clean_up.queue.get() == JOB


def test_without_parameter_servers_nothing_is_done() -> None:
    job = TemplateJob(Cluster(), servers=0).make()
    end_all(job)
    leader = Leader(job.cluster)
    leader.look()

    assert job.left("Service") == TASKS[2:]


@pytest.mark.slow
@given(st.permutations(range(3)), st.lists(st.sampled_from(["Complete", "Failed", None]), min_size=3, max_size=3))
@settings(max_examples=60, deadline=None)
def test_in_any_order_of_ends_they_go_exactly_when_all_are_complete(order: list[int], ends: list[str | None]) -> None:
    job = TemplateJob(Cluster()).make()
    leader = Leader(job.cluster)
    for count, rank in enumerate(order, start=1):
        if ends[rank] is not None:
            job.end(rank, ends[rank] or "")
        leader.look()
        job.collect_garbage()
        complete = count == 3 and ends == ["Complete"] * 3
        assert (job.left("Deployment"), job.left("Service")) == (([], []) if complete else (SERVERS, TASKS))


def test_leader_that_dies_at_any_write_leaves_what_the_next_one_finishes() -> None:
    writes = len(TASKS) + len(SERVERS)
    for lost_answer in (False, True):
        for number in range(writes):
            job = TemplateJob(Cluster())
            job.env = [{"name": "TF_CONFIG", "value": FIVE}]
            end_all(job.make())
            left = [number]

            def die(request: Request, left: list[int] = left) -> None:
                if request.verb is Verb.DELETE:
                    if not left[0]:
                        raise Died
                    left[0] -= 1

            if lost_answer:
                job.cluster.answered = die
            else:
                job.cluster.interfere = die
            with pytest.raises(Died):
                Leader(job.cluster).look()
            job.cluster.interfere = job.cluster.answered = lambda request: None
            job.collect_garbage()
            Leader(job.cluster).look()
            job.collect_garbage()

            assert (job.left("Deployment"), job.left("Service")) == ([], []), (lost_answer, number)


@pytest.mark.parametrize("status", [403, 429, 500, 503])
def test_refused_request_is_raised_and_done_by_the_next_look(job: TemplateJob, leader: Leader, status: int) -> None:
    end_all(job)
    refused = [3]

    def refuse(request: Request) -> None:
        if request.verb is Verb.DELETE and refused[0]:
            refused[0] -= 1
            raise Refusal(status, retry_after="7")

    job.cluster.interfere = refuse
    for _ in range(3):
        with pytest.raises(RequestFailed) as failed:
            leader.look()
        assert (failed.value.status, failed.value.retry_after) == (status, 7.0)
    leader.look()

    assert (job.left("Deployment"), job.left("Service")) == ([], [])


@pytest.mark.parametrize("status", [404, 409])
def test_object_that_is_gone_does_not_stop_the_others(job: TemplateJob, leader: Leader, status: int) -> None:
    end_all(job)

    def refuse(request: Request) -> None:
        if request.verb is Verb.DELETE and request.path in (
            path("Service", "mnist-ps-0"),
            path("Deployment", "mnist-ps-0"),
        ):
            raise Refusal(status)

    job.cluster.interfere = refuse
    leader.look()

    assert (job.left("Deployment"), job.left("Service")) == (["mnist-ps-0"], ["mnist-ps-0"])


class Operated:
    """A TFJob of the Kubeflow training-operator, whose pods the operator makes."""

    def __init__(self, **run_policy: str) -> None:
        self.objects = TemplateJob(Cluster(), workers=0, servers=0)
        self.spec = {
            "runPolicy": run_policy,
            "tfReplicaSpecs": {"PS": {"replicas": 1}, "Worker": {"replicas": 2}, "Evaluator": {"replicas": 1}},
        }
        self.state("Running")
        for role, rank in (("ps", 0), ("worker", 0), ("worker", 1), ("evaluator", 0)):
            self.pod(role, rank, "Running")

    def state(self, condition: str) -> None:
        self.objects.put(
            "TFJob", "mnist", spec=self.spec, status={"conditions": [{"type": condition, "status": "True"}]}
        )

    def pod(self, role: str, rank: int, phase: str) -> None:
        prefix = "training.kubeflow.org/"
        labels = {
            "operator-name": "tfjob-controller",
            "job-name": "mnist",
            "replica-type": role,
            "replica-index": str(rank),
        }
        marks = {prefix + key: value for key, value in labels.items()}
        self.objects.pod(f"mnist-{role}-{rank}", marks, "tensorflow", owned_by("TFJob", "mnist"), phase)

    def complete(self) -> None:
        self.pod("worker", 0, "Succeeded")
        self.pod("worker", 1, "Succeeded")


def test_pods_of_an_operator_go_when_its_object_has_succeeded() -> None:
    """While it goes on, the operator would make the pod again."""
    operated = Operated()
    leader = Leader(operated.objects.cluster)
    assert leader.look() is None
    operated.complete()
    assert leader.look() == 1.0
    assert "mnist-ps-0" in operated.objects.left("Pod")

    operated.state("Succeeded")
    assert leader.look() is None

    assert operated.objects.left("Pod") == ["mnist-evaluator-0", "mnist-worker-0", "mnist-worker-1"]
    assert leader.said == [
        ("TFJob ml/mnist", "ParameterServersDeleted", "all 2 workers are complete; deleted Pod mnist-ps-0")
    ]


def test_operators_object_that_goes_on_is_asked_less_and_less_often() -> None:
    operated = Operated()
    leader = Leader(operated.objects.cluster)
    operated.complete()
    pauses = []
    for _ in range(20):
        pauses.append(leader.look() or 0.0)
        leader.now += pauses[-1]

    assert pauses == sorted(pauses)
    assert (pauses[0], pauses[-1]) == (1.0, 300.0)


def make_it_again(operated: Operated) -> None:
    operated.objects.cluster.objects[path("TFJob", "mnist")]["metadata"]["uid"] = "another"


@pytest.mark.parametrize(
    ("run_policy", "change"),
    [
        ({}, lambda operated: operated.state("Failed")),
        ({}, lambda operated: operated.state("Restarting")),
        ({}, lambda operated: operated.objects.cluster.remove(path("TFJob", "mnist"))),
        ({}, make_it_again),
        ({}, lambda operated: operated.pod("worker", 1, "Failed")),
        ({}, lambda operated: operated.objects.cluster.remove(path("Pod", "mnist-worker-1"))),
        ({"cleanPodPolicy": "Running"}, lambda operated: None),
    ],
    ids=[
        "failed",
        "restarts",
        "gone",
        "another of its name",
        "worker failed",
        "worker missing",
        "the operator does it",
    ],
)
def test_pods_of_an_operator_stay(run_policy: dict[str, str], change: Callable[[Operated], None]) -> None:
    operated = Operated(**run_policy)
    operated.complete()
    operated.state("Succeeded")
    change(operated)
    Leader(operated.objects.cluster).look()

    assert "mnist-ps-0" in operated.objects.left("Pod")


def test_indexed_job_of_all_workers_and_pods_of_no_operator() -> None:
    job = TemplateJob(Cluster(), workers=0, servers=0)
    labels = {"railnet.io/net1": "true", "railnet.io/job": "mnist"}
    job.created = LONG_AGO
    job.pod("server", {**labels, "railnet.io/role": "ps", "railnet.io/rank": "0"}, "main", None)
    job.put(
        "Job",
        "workers",
        spec={"completions": 2, "completionMode": "Indexed", "template": job._template("main", labels)},
    )
    leader = Leader(job.cluster)
    assert leader.look() is None
    assert job.left("Pod") == ["server"]

    job._change(path("Job", "workers"), {"conditions": [{"type": "Complete", "status": "True"}]})
    leader.look()

    assert job.left("Pod") == []
    assert leader.said[0][2] == "all 2 workers are complete; deleted Pod server"


def test_indexed_job_of_any_number_of_completions_is_kept_in_few_bytes() -> None:
    """Each completion was kept: one suspended Job, which costs no quota, took all of the controllers' memory."""
    template = {
        "metadata": {"labels": {"railnet.io/net1": "true"}},
        "spec": {"containers": [{"name": "main", "image": "train:1"}]},
    }
    template["metadata"]["annotations"] = {"railnet.io/ps-cleanup": "x" * 250_000}
    metadata = {"name": "huge", "namespace": "ml", "uid": "u"}
    completions = 2**31 - 1
    spec = {"completionMode": "Indexed", "completions": completions, "suspend": True, "template": template}
    found = worker_job({"metadata": metadata, "spec": spec})

    assert found is not None
    assert found.tasks == TaskRange("worker", completions)
    assert len(found.switch or "") == 64


def test_pods_of_many_owners_and_one_name_are_each_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """For each owner all pods were looked at: ten thousand pods of one tenant took a minute, again after each change."""
    looked: list[str] = []
    monkeypatch.setattr(parameter_server_jobs, "_key", lambda pod: looked.append(pod.name) or key(pod))
    labels = {"group-name": "training.kubedl.io", "job-name": "mnist", "replica-type": "ps"}
    owner = {"apiVersion": "training.kubedl.io/v1alpha1", "kind": "TFJob", "name": "mnist", "controller": True}
    pods = [
        reduced_pod(f"ps-{number}", "ml", labels, ownerReferences=[owner | {"uid": f"of-{number}"}])
        for number in range(50)
    ]

    assert len(list(parameter_server_jobs.server_groups(pods, []))) == 50
    assert len(looked) == 50


def reduced_pod(name: str, namespace: str, labels: dict[str, str], **metadata: Any) -> TrainingPod:
    """Return a pod with one container, as the controllers keep it."""
    document = {
        "metadata": {"name": name, "namespace": namespace, "uid": f"uid-of-{name}", "labels": labels, **metadata}
    }
    found = training_pod(ReportedPod({**document, "spec": {"containers": [{"name": "tensorflow"}]}}))
    assert found is not None
    return found
