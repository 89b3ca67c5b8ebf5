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
        self.roots = GangRoots(StreamingApiServer(cluster, lambda: "a-token", "test"), self._answered)

    def find(self) -> Root | None:
        """Find the root; if it is asked for, have it asked."""
        found = self.roots.find(ASKED)
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
