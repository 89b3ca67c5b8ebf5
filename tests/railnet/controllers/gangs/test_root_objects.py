"""The object that a gang's pods began with is asked once, with those on the way to it."""

from typing import Any

import pytest

from railnet.apiserver.client import RequestFailed, StreamingApiServer
from railnet.controllers.gangs.root_objects import GangRoots
from railnet.gangs.planning_result import Asked, Root
from railnet.jobs.eviction_tolerance import Tolerance
from railnet.objects.owner_reference import OwnerReference
from tests.railnet.controllers.cluster_in_memory import Cluster, Refusal

POD: dict[str, Any] = {"metadata": {}, "spec": {"containers": [{"name": "main"}]}}
JOB = OwnerReference("batch/v1", "Job", "set-workers-0", "uid-of-job")
SET = OwnerReference("jobset.x-k8s.io/v1alpha2", "JobSet", "set", "uid-of-set")
ASKED = Asked("ml", JOB)


def put(
    cluster: Cluster, resource: str, owner: OwnerReference, spec: dict[str, Any], above: OwnerReference | None = None
) -> None:
    references = [] if above is None else [{**above.reference(), "controller": True}]
    metadata = {"namespace": "ml", "name": owner.name, "uid": owner.uid, "ownerReferences": references}
    path = f"/apis/{owner.api_version}/namespaces/ml/{resource}/{owner.name}"
    cluster.put(path, {"metadata": metadata, "spec": spec})


@pytest.fixture
def cluster() -> Cluster:
    """A Job of a JobSet of three Jobs with two pods each."""
    made = Cluster()
    put(made, "jobs", JOB, {"parallelism": 2, "completions": 2, "template": POD}, SET)
    job = {"spec": {"parallelism": 2, "completions": 2, "template": POD}}
    put(made, "jobsets", SET, {"replicatedJobs": [{"name": "workers", "replicas": 3, "template": job}]})
    return made


class Asking:
    def __init__(self, cluster: Cluster) -> None:
        self.answers = 0
        self.now = 1000.0
        api = StreamingApiServer(cluster, lambda: "a-token", "test")
        self.roots = GangRoots(api, self._answered, clock=lambda: self.now)

    def find(self, read_after: float = 0.0) -> Root | None:
        """Find the root; if it is asked for, have it asked."""
        found = self.roots.find(ASKED, read_after)
        while len(self.roots.queue):
            asked = self.roots.queue.get()
            assert asked is not None
            try:
                self.roots.reconcile(asked)
            except RequestFailed:
                self.roots.queue.done(asked)
                raise
            self.roots.queue.done(asked)
        return found or self.roots.find(ASKED)

    def _answered(self, asked: Asked) -> None:
        self.answers += 1


def test_root_is_the_last_owner_and_makes_all_pods(cluster: Cluster) -> None:
    asking = Asking(cluster)
    root = asking.find()

    assert root is not None
    assert root.owner == SET
    assert [(one.role, one.count) for one in root.templates] == [("workers", 6)]
    assert asking.find() == root
    assert asking.answers == 1
    assert dict(cluster.requests) == {"get jobs": 1, "get jobsets": 1}


def test_root_says_that_one_of_the_owners_creates_its_pods_in_stages(cluster: Cluster) -> None:
    assert (root := Asking(cluster).find()) is not None
    assert root.stages == ""
    job = {"spec": {"parallelism": 2, "completions": 2, "template": POD}}
    in_order = {"startupPolicy": {"startupPolicyOrder": "InOrder"}}
    put(cluster, "jobsets", SET, {"replicatedJobs": [{"name": "workers", "replicas": 3, "template": job}], **in_order})

    assert (root := Asking(cluster).find()) is not None
    assert "startupPolicyOrder InOrder" in root.stages


def test_root_is_asked_again_and_the_old_answer_counts_until_then(cluster: Cluster) -> None:
    asking = Asking(cluster)
    before = asking.find()
    put(cluster, "jobsets", SET, {"replicatedJobs": []})
    asking.roots.ask_again(ASKED)
    assert asking.roots.find(ASKED) == before
    asking.find()
    after = asking.find()

    assert after is not None
    assert [one.count for one in after.templates] == [2]  # the Job's own
    assert asking.answers == 2
    asking.roots.ask_again(ASKED)
    asking.find()
    assert asking.answers == 2  # the same answer is not news


def test_root_that_was_read_too_long_ago_is_read_again_and_the_same_answer_is_waited_for(cluster: Cluster) -> None:
    asking = Asking(cluster)
    before = asking.find()
    asking.now += 60
    assert asking.find(asking.now - 61) == before
    assert cluster.requests["get jobs"] == 1
    assert asking.roots.find(ASKED, asking.now - 60) is None
    assert asking.roots.find(ASKED) == before  # for all else, what was known counts
    assert asking.find(asking.now - 60) == before
    assert (cluster.requests["get jobs"], asking.answers) == (2, 2)


def test_root_whose_second_reading_fails_is_read_until_it_succeeds(cluster: Cluster) -> None:
    asking = Asking(cluster)
    asking.find()
    put(cluster, "jobsets", SET, {"replicatedJobs": []})
    asking.now += 60
    failures = [503, 503]

    def refuse(request: Any) -> None:
        if failures:
            raise Refusal(failures.pop())

    cluster.interfere = refuse
    for _ in range(2):
        with pytest.raises(RequestFailed):
            asking.find(asking.now - 60)
    root = asking.find(asking.now - 60)

    assert root is not None
    assert [one.count for one in root.templates] == [2]


def test_root_that_is_to_be_read_again_is_read_although_a_request_fails(cluster: Cluster) -> None:
    asking = Asking(cluster)
    asking.find()
    put(cluster, "jobsets", SET, {"replicatedJobs": []})
    asking.roots.ask_again(ASKED)
    cluster.interfere = is_down
    with pytest.raises(RequestFailed):
        asking.find()
    cluster.interfere = lambda request: None
    asking.roots.queue.add(ASKED)  # as after the pause
    asking.find()
    root = asking.find()

    assert root is not None
    assert [one.count for one in root.templates] == [2]


def is_down(request: Any) -> None:
    raise Refusal(503)


@pytest.mark.parametrize("status", [403, 404, 400])
def test_owner_that_cannot_be_read_is_the_root(cluster: Cluster, status: int) -> None:
    def refuse(request: Any) -> None:
        if request.about.resource == "jobsets":
            raise Refusal(status)

    cluster.interfere = refuse
    root = Asking(cluster).find()

    assert root is not None
    assert root.owner == SET
    assert [one.count for one in root.templates] == [2]


def test_owner_of_another_uid_is_not_read(cluster: Cluster) -> None:
    cluster.objects["/apis/jobset.x-k8s.io/v1alpha2/namespaces/ml/jobsets/set"]["metadata"]["uid"] = "other"
    root = Asking(cluster).find()

    assert root is not None
    assert [one.count for one in root.templates] == [2]


def test_owner_of_an_unknown_kind_has_no_templates() -> None:
    cluster = Cluster()
    roots = GangRoots(StreamingApiServer(cluster, lambda: "a-token", "test"), lambda _: None)
    asked = Asked("ml", OwnerReference("acme.com/v1", "Flow", "flow", "uid"))
    roots.find(asked)
    roots.reconcile(asked)

    root = roots.find(asked)
    assert root is not None
    assert (root.owner, root.templates) == (asked.owner, ())
    assert root.tolerance.refusal is not None
    assert "is of a kind of which Railnet does not know" in root.tolerance.refusal.why
    assert not cluster.requests


def test_kind_that_cannot_be_read_for_long_does_not_hold_the_gang_for_ever(cluster: Cluster) -> None:
    def refuse(request: Any) -> None:
        raise Refusal(500)

    cluster.interfere = refuse
    asking = Asking(cluster)
    for _ in range(5):
        with pytest.raises(RequestFailed):
            asking.find()

    root = asking.find()
    assert root is not None
    assert (root.owner, root.templates, root.tolerance.unread) == (JOB, (), True)


def test_root_says_what_an_eviction_costs_the_objects_on_the_way(cluster: Cluster) -> None:
    root = Asking(cluster).find()
    assert root is not None
    assert root.tolerance.refusal is not None
    assert root.tolerance.refusal.why.startswith("Job set-workers-0 counts evicted pods as failures")

    policy = {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]}
    template = {**POD, "spec": {**POD["spec"], "restartPolicy": "Never"}}
    put(cluster, "jobs", JOB, {"parallelism": 2, "template": template, "podFailurePolicy": policy}, SET)
    root = Asking(cluster).find()
    assert root is not None
    assert root.tolerance == Tolerance(None, pauses=True)


def test_namespace_with_too_many_large_templates_keeps_those_that_were_read_last(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("railnet.gangs.shared_pod_parts.MOST_BYTES", 3000)
    asking = Asking(cluster)
    large = {"spec": {**POD["spec"], "nodeSelector": {f"key-{number}": "value" for number in range(100)}}}
    owners = [OwnerReference("batch/v1", "Job", f"job-{number}", f"uid-{number}") for number in range(5)]
    for owner in owners:
        put(cluster, "jobs", owner, {"parallelism": 3, "template": large})
        asking.roots.reconcile(Asked("ml", owner))
    roots = [asking.roots.find(Asked("ml", owner)) for owner in owners]

    counts = [(sum(one.count for one in root.templates), root.templates[0].shape is not None) for root in roots if root]
    assert counts == [(3, False), (3, False), (3, False), (3, False), (3, True)]
