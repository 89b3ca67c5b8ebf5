"""Nothing is evicted that would cost a job: what is read of the owners before, and what is said where nothing may be evicted."""

from typing import Any

import pytest

from railnet.apiserver.request import Request
from tests.railnet.controllers.cluster_in_memory import Refusal
from tests.railnet.controllers.gangs.eviction_rounds import (
    STUCK,
    place_and_take,
    said,
    take,
    three_leaves,
)
from tests.railnet.controllers.gangs.gang_cluster import GangCluster, Leader, path, work


@pytest.fixture
def cluster() -> GangCluster:
    return three_leaves()


NO_POLICY = {"podFailurePolicy": None}


def add_job_of_pods(cluster: GangCluster, name: str, pods: int, job_spec: dict[str, object], **fields: object) -> None:
    """Add a Job with a specification of its own, and its gated pods."""
    owner = cluster.add_job(name, pods, job_spec, **fields)
    for rank in range(pods):
        cluster.add_pod(f"{name}-{rank}", name, owner=owner, **fields)


def test_gang_whose_job_counts_evictions_is_not_evicted_and_says_what_to_do(cluster: GangCluster) -> None:
    add_job_of_pods(cluster, "bert", 4, NO_POLICY)
    leader = Leader(cluster)
    place_and_take(cluster, leader, "a")
    cluster.now += STUCK
    for _ in range(3):
        leader.settle()
        cluster.now += 60

    assert cluster.requests["create pods"] == 0
    assert cluster.requests["get jobs"] == 1  # what was read once counts
    (text,) = said(cluster, "GangWaiting")
    assert text == (
        "members have no nodes in railnet.io/leaf=a, and the gang is not evicted, because Job bert counts evicted pods as failures, and fails at "
        "its backoffLimit; create it with restartPolicy: Never and podFailurePolicy: {rules: [{action: Ignore, onPodConditions: [{type: "
        'DisruptionTarget, status: "True"}]}]} as the first rule'
    )


def test_one_job_that_counts_evictions_keeps_the_whole_gang(cluster: GangCluster) -> None:
    first = cluster.add_job("bert", 2)
    second = cluster.add_job("bert-ps", 2, NO_POLICY)
    for rank in range(2):
        cluster.add_pod(f"bert-{rank}", "bert", owner=first, least=4)
        cluster.add_pod(f"bert-ps-{rank}", "bert", owner=second, least=4)
    leader = Leader(cluster)
    place_and_take(cluster, leader, "a")
    cluster.now += STUCK
    leader.settle()

    assert cluster.requests["create pods"] == 0
    assert "Job bert-ps counts evicted pods as failures" in said(cluster, "GangWaiting")[-1]


@pytest.mark.parametrize("status", [403, 503])
def test_nothing_is_evicted_until_the_job_can_be_read_and_it_is_read_again_each_minute(
    cluster: GangCluster, status: int
) -> None:
    cluster.add_gang("bert", 4, least=4)
    leader = Leader(cluster)
    unreadable = True

    def fail(request: Request) -> None:
        if unreadable and request.verb.right == "get":
            raise Refusal(status)

    cluster.interfere = fail
    place_and_take(cluster, leader, "a")
    cluster.now += STUCK
    again = leader.settle()
    assert again is not None
    assert "Job bert cannot be read" in said(cluster, "GangWaiting")[-1]
    unreadable = False
    cluster.now += 59
    leader.settle()
    assert cluster.requests["create pods"] == 0
    cluster.now += 1
    leader.settle()

    assert cluster.requests["create pods"] == 4


def test_nothing_is_evicted_while_its_job_is_being_read(cluster: GangCluster) -> None:
    cluster.add_gang("bert", 4, least=4)
    place_and_take(cluster, Leader(cluster), "a")
    after = Leader(cluster)  # which has read nothing
    after.learn()
    after.gangs.reconcile("all gangs")
    cluster.now += STUCK
    after.gangs.reconcile("all gangs")
    assert len(after.gangs.roots.queue) == 1
    assert len(after.gangs.writes.queue) == 0
    after.settle()

    assert cluster.requests["create pods"] == 4


def test_gang_whose_job_would_fail_is_never_preempted(cluster: GangCluster) -> None:
    for gang in ("low-a", "low-b"):
        add_job_of_pods(cluster, gang, 4, NO_POLICY, priority=10)
    cluster.add_gang("low-c", 4, priority=20)
    leader = Leader(cluster)
    leader.settle()
    cluster.schedule()
    leader.settle()
    cluster.add_gang("bert", 4, priority=100)
    leader.settle()

    assert {gang for reason, gang, _ in cluster.events if reason == "GangPreempted"} == {"Job/low-c"}
    assert sorted(name for name, pod in cluster.pods().items() if "deletionTimestamp" in pod["metadata"]) == [
        f"low-c-{rank}" for rank in range(4)
    ]


def test_gang_that_waits_says_how_many_of_lower_priority_cannot_be_evicted(cluster: GangCluster) -> None:
    for gang in ("low-a", "low-b", "low-c"):
        add_job_of_pods(cluster, gang, 4, NO_POLICY, priority=10)
    leader = Leader(cluster)
    leader.settle()
    cluster.schedule()
    leader.settle()
    cluster.add_gang("bert", 4, priority=100)
    leader.settle()

    assert cluster.requests["create pods"] == 0
    assert said(cluster, "GangWaiting")[-1].endswith(
        "; 3 gangs of lower priority, such as ml/low-a, cannot be evicted without a loss of the job"
    )


def test_eviction_that_an_earlier_version_began_is_not_continued_at_the_jobs_cost(cluster: GangCluster) -> None:
    add_job_of_pods(cluster, "bert", 4, NO_POLICY)
    leader = Leader(cluster)
    place_and_take(cluster, leader, "a")

    def mark(pod: dict[str, object]) -> None:
        text = '{"domain":{"railnet.io/leaf":"a"},"attempt":1,"evicted":"failed"}'
        pod["metadata"]["annotations"]["railnet.io/placement"] = text  # type: ignore[index]

    cluster.change("bert-0", mark)
    Leader(cluster).settle()

    assert cluster.requests["create pods"] == 0
    assert "Job bert counts evicted pods as failures" in said(cluster, "GangWaiting")[-1]


def test_gang_of_which_an_eviction_completed_a_pod_is_not_evicted_any_more(cluster: GangCluster) -> None:
    cluster.add_gang("bert", 4, least=4)
    leader = Leader(cluster)
    leader.settle()
    cluster.schedule()
    leader.settle()

    def complete(pod: dict[str, object]) -> None:
        pod["status"] = {"phase": "Succeeded", "conditions": [{"type": "DisruptionTarget", "status": "True"}]}

    cluster.change("bert-0", complete)
    leader.settle()
    (text,) = said(cluster, "GangEvicted")
    assert "have the program end with another code on SIGTERM" in text
    cluster.add_gang("high", 4, priority=100)
    for node in (f"{leaf}-{number}" for leaf in ("b", "c") for number in range(4)):
        take(cluster, node)
    leader.settle()

    assert cluster.requests["create pods"] == 0


@pytest.mark.parametrize("known_to", ["the next leader", "the leader that saw all pods go"])
def test_pod_that_an_eviction_completed_counts_for_its_job(cluster: GangCluster, known_to: str) -> None:
    cluster.add_gang("bert", 4)
    leader = Leader(cluster)
    leader.settle()
    cluster.schedule()
    leader.settle()
    ended = {"phase": "Succeeded", "conditions": [{"type": "DisruptionTarget", "status": "True"}]}
    cluster.change("bert-0", lambda pod: pod.update(status=ended))
    leader.settle()
    if known_to == "the next leader":
        leader = Leader(cluster)
    else:
        for rank in range(4):
            cluster.remove(path(f"bert-{rank}"))
        leader.settle()
        cluster.make_again("bert", 4)
    leader.settle()
    cluster.schedule()
    for node in (f"{leaf}-{number}" for leaf in ("b", "c") for number in range(4)):
        take(cluster, node)
    cluster.add_gang("high", 4, priority=100)
    leader.settle()

    assert cluster.requests["create pods"] == 0


def test_event_of_an_eviction_says_how_long_the_job_controller_pauses(cluster: GangCluster) -> None:
    cluster.add_gang("bert", 4)
    leader = Leader(cluster)
    place_and_take(cluster, leader, "a")
    cluster.now += STUCK
    leader.settle()

    (text,) = said(cluster, "GangEvicted")
    assert text.endswith(
        "this is eviction 1 of 3; its Job makes new pods after a pause of 80 s, and counts a pod as complete whose program ends with 0 on SIGTERM"
    )


def put_pytorch_job(cluster: GangCluster, name: str, pods: int = 4, **run_policy: int) -> dict[str, Any]:
    """Create or change a PyTorchJob, which its author may do at any time, and return the reference of its pods to it."""
    spec = {
        "pytorchReplicaSpecs": {"Worker": {"replicas": pods, "restartPolicy": "OnFailure"}},
        "runPolicy": run_policy,
    }
    path_of_job = f"/apis/kubeflow.org/v1/namespaces/ml/pytorchjobs/{name}"
    job = cluster.put(path_of_job, {"metadata": {"namespace": "ml", "name": name}, "spec": spec})
    uid = job["metadata"]["uid"]
    return {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": name, "uid": uid, "controller": True}


def add_pytorch_gang(cluster: GangCluster, name: str, pods: int, **fields: Any) -> None:
    owner = put_pytorch_job(cluster, name, pods)
    for rank in range(pods):
        cluster.add_pod(f"{name}-{rank}", name, owner=owner, **fields)


def run_low_gangs(cluster: GangCluster, leader: Leader, *gangs: tuple[str, int]) -> None:
    """Have gangs run that may give way, and leave no other room."""
    for name, pods in gangs:
        add_pytorch_gang(cluster, name, pods, priority=1)
    leader.settle()
    cluster.schedule()
    leader.settle()
    for node in (f"{leaf}-{number}" for leaf in ("a", "b", "c") for number in range(4)):
        if node not in cluster.nodes().values():
            take(cluster, node)


def test_owner_is_read_again_before_its_pods_are_evicted(cluster: GangCluster) -> None:
    leader = Leader(cluster)
    run_low_gangs(cluster, leader, ("low", 4))
    put_pytorch_job(cluster, "low", backoffLimit=0)
    cluster.now += 61
    cluster.add_gang("high", 4, priority=10)
    leader.settle()
    leader.settle()

    assert cluster.requests["create pods"] == 0
    assert "cannot be evicted without a loss of the job" in said(cluster, "GangWaiting")[-1]


def test_owner_is_read_again_before_a_gang_is_evicted_whose_place_was_taken(cluster: GangCluster) -> None:
    add_pytorch_gang(cluster, "bert", 4)
    leader = Leader(cluster)
    place_and_take(cluster, leader, "a")
    put_pytorch_job(cluster, "bert", backoffLimit=0)
    cluster.now += 61
    leader.settle()

    assert cluster.requests["create pods"] == 0
    assert "runPolicy.backoffLimit" in said(cluster, "GangWaiting")[-1]


def test_permission_to_evict_counts_for_a_minute(cluster: GangCluster) -> None:
    leader = Leader(cluster)
    run_low_gangs(cluster, leader, ("low", 4))
    assert cluster.requests["get pytorchjobs"] == 1
    cluster.now += 59
    cluster.add_gang("high", 4, priority=10)
    leader.settle()

    assert (cluster.requests["create pods"], cluster.requests["get pytorchjobs"]) == (4, 1)


def test_owner_that_cannot_be_read_again_keeps_its_pods(cluster: GangCluster) -> None:
    leader = Leader(cluster)
    run_low_gangs(cluster, leader, ("low", 4))
    cluster.now += 61
    failures = [503] * 3
    cluster.refuse("get", failures)
    cluster.add_gang("high", 4, priority=10)
    leader.learn()
    for _ in range(3):
        leader.gangs.reconcile("all gangs")
        work(leader.gangs.roots.queue, leader.gangs.roots.reconcile)
        assert cluster.requests["create pods"] == 0
    assert failures == []
    leader.settle()

    assert cluster.requests["create pods"] == 4


def test_no_gang_gives_way_unless_all_may_that_would_have_to(cluster: GangCluster) -> None:
    leader = Leader(cluster)
    run_low_gangs(cluster, leader, ("one", 2), ("two", 2))
    assert set(cluster.leaves().values()) == {"a", None}
    put_pytorch_job(cluster, "two", 2, backoffLimit=0)
    cluster.now += 61
    cluster.add_gang("high", 4, priority=10)
    leader.settle()
    leader.settle()

    assert cluster.requests["create pods"] == 0
    assert said(cluster, "GangPreempted") == []
    assert not [text for text in said(cluster, "GangWaiting") if "to leave" in text]


def test_another_gang_gives_way_in_place_of_one_that_may_not_any_more(cluster: GangCluster) -> None:
    """The one of the lowest priority would be the first."""
    leader = Leader(cluster)
    run_low_gangs(cluster, leader, ("one", 4), ("two", 4))
    for rank in range(4):
        cluster.change(f"two-{rank}", lambda pod: pod["spec"].update(priority=0))
    leader.settle()
    put_pytorch_job(cluster, "two", backoffLimit=0)
    cluster.now += 61
    cluster.add_gang("high", 4, priority=10)
    leader.settle()
    leader.settle()

    leaving = {name for name, pod in cluster.pods().items() if "deletionTimestamp" in pod["metadata"]}
    assert leaving == {f"one-{rank}" for rank in range(4)}
