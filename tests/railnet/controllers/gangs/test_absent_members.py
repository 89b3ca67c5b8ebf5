"""Gangs of which members do not exist: none starts before all exist, or, if they are created in stages, room is kept for the others for a while."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from railnet.gangs import evictions, planning
from tests.railnet.controllers.gangs.eviction_rounds import take
from tests.railnet.controllers.gangs.gang_cluster import LEAST, GangCluster, Leader, path

MEMBER, CLOSED = planning.MEMBER_SECONDS, evictions.CLOSED_SECONDS


def texts(cluster: GangCluster, reason: str) -> list[str]:
    return [text for event_reason, _, text in cluster.events if event_reason == reason]


def quiet(cluster: GangCluster, leader: Leader) -> None:
    """Let the time pass in which more members may come."""
    leader.settle()
    cluster.now += 11
    leader.settle()


@pytest.mark.parametrize("least", [4, None], ids=["min-available", "all pods of the job"])
def test_gang_of_which_a_quota_permits_a_part_does_not_start(cluster: GangCluster, least: int | None) -> None:
    owner = cluster.add_job("bert", 4, least=least)
    for rank in range(3):
        cluster.add_pod(f"bert-{rank}", "bert", owner=owner, least=least)
    leader = Leader(cluster)
    quiet(cluster, leader)

    assert len(cluster.gated()) == 3
    assert cluster.requests["patch pods"] == 0
    (text,) = texts(cluster, "GangWaiting")
    assert text.startswith("3 of the 4 members that start together exist, and none starts before all of them do")
    assert "see the events of Job bert" in text
    cluster.add_pod("bert-3", "bert", owner=owner, least=least)
    leader.settle()
    assert cluster.gated() == []


def begin_without_gate(cluster: GangCluster, pod: str) -> None:
    """Have a pod be one for which the webhook did not answer in time: the scheduler binds it at once."""
    cluster.change(pod, lambda found: found["spec"].pop("schedulingGates"))
    cluster.schedule()


def gang_with_a_member_without_gate(cluster: GangCluster, members: int) -> tuple[dict[str, Any], Leader]:
    """Add so many members of a gang of four, of which the first has no gate; return the owner, and a leader that has seen them."""
    owner = cluster.add_job("bert", 4, least=4)
    for rank in range(members):
        cluster.add_pod(f"bert-{rank}", "bert", owner=owner, least=4)
    begin_without_gate(cluster, "bert-0")
    leader = Leader(cluster)
    quiet(cluster, leader)
    return owner, leader


def test_member_that_was_created_without_a_gate_begins_alone(cluster: GangCluster) -> None:
    owner, leader = gang_with_a_member_without_gate(cluster, 3)

    assert cluster.gated() == ["bert-1", "bert-2"]
    (text,) = texts(cluster, "GangWaiting")
    assert text.startswith("3 of the 4 members that start together exist")
    cluster.add_pod("bert-3", "bert", owner=owner, least=4)
    leader.settle()
    cluster.schedule()
    assert cluster.gated() == []
    assert set(cluster.nodes().values()) == {f"a-{number}" for number in range(4)}


def test_members_without_a_gate_do_not_have_the_others_evicted(cluster: GangCluster) -> None:
    """The scheduler finds no node for one, and others come again and again: what is placed already has its room all the same."""
    owner = cluster.add_job("bert", 12, least=12, gpus=4)
    for rank in range(12):
        cluster.add_pod(f"bert-{rank:02}", "bert", owner=owner, least=12, gpus=4, constraint=None)
    leader = Leader(cluster)
    leader.settle()
    cluster.schedule()
    for pod in ("bert-00", "bert-01"):
        cluster.remove(path(pod))
    cluster.make_again("bert", 11, least=12, gpus=4, constraint=None)
    for number in range(8):
        pod = f"bert-again-{number}"
        created = datetime.fromtimestamp(cluster.now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        cluster.add_pod(pod, "bert", owner=owner, least=12, gpus=4, constraint=None, created=created)
        cluster.change(pod, lambda found: found["spec"].pop("schedulingGates"))
        leader.settle()
        cluster.now += 9
        leader.settle()

    assert texts(cluster, "GangRefused") == texts(cluster, "GangEvicted") == []
    assert cluster.requests["create pods"] == 0


def test_members_follow_one_without_a_gate_if_the_others_do_not_come_for_long(cluster: GangCluster) -> None:
    """It may be a gang that ran before Railnet was installed."""
    _, leader = gang_with_a_member_without_gate(cluster, 3)
    cluster.now += MEMBER
    leader.settle()

    assert cluster.gated() == []


def test_gang_that_runs_without_gates_is_joined_by_a_member_that_is_made_again(cluster: GangCluster) -> None:
    _, leader = gang_with_a_member_without_gate(cluster, 4)

    assert cluster.gated() == []
    leader.settle()
    assert leader.impossible == set()


def test_gang_says_nothing_while_its_members_come(cluster: GangCluster) -> None:
    owner = cluster.add_job("bert", 4)
    leader = Leader(cluster)
    for rank in range(4):
        cluster.add_pod(f"bert-{rank}", "bert", owner=owner)
        leader.settle()
        cluster.now += 9
    leader.settle()

    assert [reason for reason, _, _ in cluster.events] == ["GangPlaced"]


def test_members_that_are_complete_count(cluster: GangCluster) -> None:
    owner = cluster.add_job("bert", 4, least=4)
    for rank in range(4):
        cluster.add_pod(f"bert-{rank}", "bert", owner=owner, least=4)
    for rank in range(2):
        cluster.bind(f"bert-{rank}", f"a-{rank}")
        cluster.change(f"bert-{rank}", lambda pod: pod["status"].update(phase="Succeeded"))
    Leader(cluster).settle()

    assert not {"bert-2", "bert-3"} & {*cluster.gated()}


def test_member_that_is_deleted_before_the_gates_open_closes_them_for_all(cluster: GangCluster) -> None:
    cluster.add_gang("first", 4)
    cluster.add_gang("second", 4)
    leader = Leader(cluster)
    leader.settle()
    cluster.add_gang("bert", 4, least=4)
    leader.settle()
    cluster.remove(path("bert-0"))
    for name in [name for name in cluster.pods() if name.startswith("first")]:
        cluster.remove(path(name))
    quiet(cluster, leader)
    assert cluster.gated() == ["bert-1", "bert-2", "bert-3"]

    cluster.make_again("bert", 4, least=4)
    leader.settle()
    assert cluster.gated() == []


def test_member_that_is_deleted_while_the_gates_open_follows_the_others(cluster: GangCluster) -> None:
    cluster.add_gang("bert", 4, least=4)
    leader = Leader(cluster)
    leader.learn()
    leader.gangs.reconcile("all gangs")
    cluster.remove(path("bert-0"))
    leader.settle()
    assert cluster.gated() == []
    cluster.make_again("bert", 4, least=4)
    leader.settle()

    assert len(cluster.pods()) == 4
    assert cluster.gated() == []
    assert set(cluster.leaves().values()) == {"a"}


def test_job_that_is_made_smaller_starts_with_what_it_has_now(cluster: GangCluster) -> None:
    owner = cluster.add_job("bert", 4)
    for rank in range(3):
        cluster.add_pod(f"bert-{rank}", "bert", owner=owner)
    leader = Leader(cluster)
    leader.settle()
    assert len(cluster.gated()) == 3
    cluster.add_job("bert", 3)
    cluster.now += 61
    leader.settle()

    assert cluster.gated() == []


def test_number_that_the_job_cannot_make_is_refused_in_words(cluster: GangCluster) -> None:
    cluster.add_gang("bert", 3, least=8)
    leader = Leader(cluster)
    quiet(cluster, leader)

    assert len(cluster.gated()) == 3
    (text,) = texts(cluster, "GangRefused")
    assert "Job bert makes 3 pods: set min-available to 3 at most, or create the others" in text


def test_gang_of_several_jobs_is_not_refused_while_they_are_created(cluster: GangCluster) -> None:
    for name in ("first", "second"):
        owner = cluster.add_job(name, 1, least=3)
        cluster.add_pod(f"{name}-0", "bert", owner=owner, least=3)
    leader = Leader(cluster)
    quiet(cluster, leader)

    assert texts(cluster, "GangRefused") == []
    (text,) = texts(cluster, "GangWaiting")
    assert text.startswith("2 of the 3 members that start together exist")
    cluster.add_pod("third-0", "bert", owner=cluster.add_job("third", 1, least=3), least=3)
    leader.settle()
    assert cluster.gated() == []


@pytest.mark.parametrize("owned", [True, False])
def test_pod_that_wants_all_places_with_members_that_never_come_stops_no_other_gang(
    cluster: GangCluster, *, owned: bool
) -> None:
    cluster.add_gang("runs", 1)
    leader = Leader(cluster)
    leader.settle()
    cluster.schedule()
    owner = cluster.add_job("large", 8, least=8) if owned else None
    cluster.add_pod("large-0", "large", owner=owner, least=8, constraint=None)
    leader.settle()
    cluster.now += 1000
    leader.settle()
    cluster.add_gang("small", 2)
    cluster.add_gang("next", 4)
    leader.settle()

    assert cluster.gated() == ["large-0"]


def staged(cluster: GangCluster, pods: int = 4, **fields: object) -> dict[str, object]:
    """Add a StatefulSet that makes a pod when the one before it is ready, and its first pod."""
    owner = cluster.add_stateful_set("dag", pods, **fields)
    cluster.add_pod("dag-0", "dag", owner=owner, **fields)
    return owner


def run_in_stages(cluster: GangCluster, leader: Leader, *, settles: bool = True) -> None:
    """Have a StatefulSet make its four pods one after the other, and all run."""
    owner = staged(cluster, least=4)
    for rank in range(1, 4):
        leader.settle()
        cluster.schedule()
        cluster.add_pod(f"dag-{rank}", "dag", owner=owner, least=4)
    leader.learn()
    leader.look()
    cluster.schedule()
    if settles:
        leader.settle()


def test_stateful_set_that_makes_its_pods_at_once_waits_for_all(cluster: GangCluster) -> None:
    owner = cluster.add_stateful_set("dag", 4, "Parallel", least=4)
    cluster.add_pod("dag-0", "dag", owner=owner, least=4)
    quiet(cluster, Leader(cluster))

    assert cluster.gated() == ["dag-0"]


def test_stages_do_not_help_a_number_that_the_job_cannot_make(cluster: GangCluster) -> None:
    staged(cluster, 2, least=4)
    quiet(cluster, Leader(cluster))

    assert cluster.gated() == ["dag-0"]
    assert "StatefulSet dag makes 2 pods" in texts(cluster, "GangRefused")[0]


def test_gang_that_was_opened_early_is_evicted_when_the_others_do_not_come(cluster: GangCluster) -> None:
    owner = staged(cluster, least=4)
    leader = Leader(cluster)
    leader.settle()
    cluster.schedule()
    cluster.add_gang("four", 4)
    cluster.add_gang("three", 3)
    leader.settle()
    assert [name[:5] for name in cluster.gated()] == ["three"] * 3
    cluster.now += MEMBER - 1
    leader.settle()
    assert len(cluster.gated()) == 3
    assert cluster.requests["create pods"] == 0
    cluster.now += 1
    leader.settle()
    leader.settle()
    assert cluster.requests["create pods"] == 1
    assert texts(cluster, "GangEvicted")[0].startswith("3 of 4 members were not created in the time")

    cluster.end_leaving()
    cluster.add_pod("dag-0", "dag", owner=owner, least=4)
    leader.settle()
    assert cluster.gated() == ["dag-0"]  # others have the room, and the gates are closed for a while
    assert "the others did not come in time" in texts(cluster, "GangWaiting")[-1]
    for number in range(4):
        cluster.add_node(f"c-{number}", "c")
    cluster.now += CLOSED - 1
    leader.settle()
    assert cluster.gated() == ["dag-0"]
    cluster.now += 1
    leader.settle()
    assert cluster.gated() == []
    assert '"attempt":2' in cluster.pods()["dag-0"]["metadata"]["annotations"]["railnet.io/placement"]


def test_gates_that_are_closed_for_a_while_open_when_all_members_exist(cluster: GangCluster) -> None:
    owner = staged(cluster, least=4)
    leader = Leader(cluster)
    leader.settle()
    cluster.schedule()
    leader.settle()
    cluster.now += MEMBER
    leader.settle()
    leader.settle()
    cluster.end_leaving()
    for rank in range(4):
        cluster.add_pod(f"dag-{rank}", "dag", owner=owner, least=4)
    leader.settle()

    assert cluster.gated() == []


def test_time_of_the_reservation_is_in_the_pods_and_counts_for_the_next_leader(cluster: GangCluster) -> None:
    staged(cluster, least=4)
    first = Leader(cluster)
    first.settle()
    cluster.schedule()
    first.settle()
    assert (
        f'"reservedUntil":{int(1000 + MEMBER)}'
        in cluster.pods()["dag-0"]["metadata"]["annotations"]["railnet.io/placement"]
    )
    cluster.now += MEMBER - 1
    leader = Leader(cluster)
    leader.settle()
    assert cluster.requests["create pods"] == 0
    cluster.now += 1
    leader.settle()
    leader.settle()

    assert cluster.requests["create pods"] == 1


def test_pods_that_nothing_makes_again_stay_when_the_others_do_not_come(cluster: GangCluster) -> None:
    staged(cluster, least=4)
    leader = Leader(cluster)
    leader.settle()
    cluster.schedule()
    cluster.add_pod("dag-extra", "dag", least=4, created="1970-01-01T00:11:00Z")
    leader.settle()
    cluster.now += MEMBER
    leader.settle()

    assert cluster.requests["create pods"] == 0
    assert (
        "those that have begun stay, because pods that no other object makes again" in texts(cluster, "GangWaiting")[-1]
    )


def test_gang_whose_job_an_eviction_would_fail_stays_when_the_others_do_not_come(cluster: GangCluster) -> None:
    """A JobSet that creates its Jobs in order, of which the first has no rule for evicted pods."""
    owner = cluster.add_job("driver", 1, {"podFailurePolicy": None}, least=4)
    driver = cluster.objects["/apis/batch/v1/namespaces/ml/jobs/driver"]
    template = {"spec": driver["spec"]}
    jobs = [{"name": "driver", "template": template}, {"name": "workers", "replicas": 3, "template": template}]
    spec = {"startupPolicy": {"startupPolicyOrder": "InOrder"}, "replicatedJobs": jobs}
    jobset = cluster.put(
        "/apis/jobset.x-k8s.io/v1alpha2/namespaces/ml/jobsets/set",
        {"metadata": {"namespace": "ml", "name": "set"}, "spec": spec},
    )
    above = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "set", "controller": True}
    above["uid"] = jobset["metadata"]["uid"]
    metadata = {**driver["metadata"], "ownerReferences": [above]}
    cluster.put("/apis/batch/v1/namespaces/ml/jobs/driver", {**driver, "metadata": metadata})
    cluster.add_pod("driver-0", "driver", owner=owner, least=4)
    leader = Leader(cluster)
    leader.settle()
    cluster.schedule()
    leader.settle()
    assert cluster.gated() == []
    cluster.now += MEMBER
    leader.settle()
    leader.settle()

    assert cluster.requests["create pods"] == 0
    text = texts(cluster, "GangWaiting")[-1]
    assert text.startswith("3 of 4 members have not come within 10 minutes")
    assert "those that have begun stay, because" in text


def test_gang_that_was_whole_is_not_evicted_for_a_member_that_is_not_made_again(cluster: GangCluster) -> None:
    owner = staged(cluster, least=4)
    leader = Leader(cluster)
    for rank in range(1, 4):
        leader.settle()
        cluster.schedule()
        cluster.add_pod(f"dag-{rank}", "dag", owner=owner, least=4)
    leader.settle()
    cluster.schedule()
    leader.settle()
    assert len(cluster.nodes()) == 4
    cluster.remove(path("dag-1"))
    leader.settle()
    for _ in range(4):
        cluster.now += MEMBER / 2
        leader.settle()

    assert cluster.requests["create pods"] == 0
    assert [text for text in texts(cluster, "GangWaiting") if text.startswith("1 of 4 members have not come")]


def test_gang_that_was_whole_is_not_evicted_when_its_last_member_goes_soon_after_the_reserved_time(
    cluster: GangCluster,
) -> None:
    """The last member alone says that all existed; without it the others look as if it had never come."""
    owner = staged(cluster, least=4)
    leader = Leader(cluster)
    for rank in range(1, 4):
        leader.settle()
        cluster.schedule()
        cluster.add_pod(f"dag-{rank}", "dag", owner=owner, least=4)
    leader.settle()
    cluster.schedule()
    leader.settle()
    cluster.now += MEMBER + 5
    leader.settle()
    cluster.remove(path("dag-3"))
    leader.settle()

    assert cluster.requests["create pods"] == 0


@pytest.mark.parametrize("gone", [["dag-3"], ["dag-0"], ["dag-2", "dag-3"]], ids=["last", "first", "last two"])
def test_next_leader_does_not_evict_a_gang_that_was_whole_when_members_go(
    cluster: GangCluster, gone: list[str]
) -> None:
    """The pods say that all members existed, and each of them says it: the last one alone would take it with it."""
    leader = Leader(cluster)
    run_in_stages(cluster, leader)
    cluster.now += MEMBER + 5
    for name in gone:
        cluster.remove(path(name))
    Leader(cluster).settle()

    assert cluster.requests["create pods"] == 0


def test_pods_of_a_gang_that_is_whole_are_written_once(cluster: GangCluster) -> None:
    leader = Leader(cluster)
    run_in_stages(cluster, leader)
    for _ in range(3):
        cluster.now += 31
        leader.settle()
    Leader(cluster).settle()

    assert cluster.requests["patch pods"] == 4 + 3  # the last member never had a time
    assert "reservedUntil" not in str(cluster.pods())


@pytest.mark.parametrize("status", [422, 403, 503])
def test_pods_of_a_gang_that_is_whole_are_written_although_a_request_fails(cluster: GangCluster, status: int) -> None:
    leader = Leader(cluster)
    run_in_stages(cluster, leader, settles=False)
    cluster.refuse("patch", [status] * 3)
    for _ in range(4):
        leader.settle()
        cluster.now += 31

    assert "reservedUntil" not in str(cluster.pods())


def test_gang_of_which_the_job_cannot_be_read_keeps_the_time_of_its_reservation(cluster: GangCluster) -> None:
    """Whether it is whole is not known."""
    staged(cluster)
    leader = Leader(cluster)
    leader.settle()
    cluster.schedule()
    cluster.refuse("get", [403] * 10)
    Leader(cluster).settle()

    assert "reservedUntil" in str(cluster.pods())


@pytest.mark.parametrize("seconds", [30.0, MEMBER - 1], ids=["soon", "late"])
@pytest.mark.parametrize("least", [4, None], ids=["min-available", "all pods of the job"])
def test_next_leader_gives_no_gang_the_room_that_is_reserved_for_another(
    cluster: GangCluster, seconds: float, least: int | None
) -> None:
    """For how many members it is reserved is known when the object has been read that makes them."""
    for number in range(4):
        take(cluster, f"b-{number}")
    staged(cluster, least=least)
    leader = Leader(cluster)
    leader.settle()
    cluster.schedule()
    cluster.add_gang("other", 3, least=3)
    leader.settle()
    cluster.now += seconds
    leader = Leader(cluster)
    leader.settle()
    assert [name[:5] for name in cluster.gated()] == ["other"] * 3
    cluster.now += MEMBER - seconds
    leader.settle()
    leader.settle()

    assert cluster.gated() == []


def test_job_that_cannot_be_read_for_long_does_not_keep_other_gangs_from_the_next_leader(cluster: GangCluster) -> None:
    staged(cluster)
    leader = Leader(cluster)
    leader.settle()
    cluster.schedule()
    leader = Leader(cluster)
    leader.learn()
    leader.gangs.reconcile("all gangs")
    cluster.add_gang("other", 3, least=3)
    leader.learn()
    leader.gangs.reconcile("all gangs")
    assert len(leader.gangs.writes.queue) == 0
    cluster.now += 30
    leader.gangs.reconcile("all gangs")

    assert len(leader.gangs.writes.queue) == 3


@pytest.mark.parametrize("is_next", [False, True], ids=["the leader that placed it", "the next leader"])
def test_time_that_a_tenant_writes_keeps_no_room_for_longer(cluster: GangCluster, is_next: bool) -> None:
    """One pod, which nothing makes again, would keep the room of any number of others for ever."""
    cluster.add_pod("one-0", "one", least=1)
    leader = Leader(cluster)
    leader.settle()
    cluster.schedule()
    place = {"domain": {"railnet.io/leaf": "a"}, "attempt": 1, "node": "a-0", "reservedUntil": (1 << 40) - 1}

    def reserve(pod: dict[str, Any]) -> None:
        pod["metadata"]["annotations"]["railnet.io/placement"] = json.dumps(place)
        pod["metadata"]["labels"][LEAST] = "4"

    cluster.change("one-0", reserve)
    leader = Leader(cluster) if is_next else leader
    leader.settle()
    take(cluster, "b-0")
    cluster.add_gang("other", 3)
    cluster.add_gang("next", 3)
    leader.settle()
    assert len(cluster.gated()) == 3
    cluster.now += MEMBER
    leader.settle()

    assert cluster.gated() == []


def test_gang_that_is_evicted_for_absent_members_keeps_the_places_of_its_pods_until_they_are_gone(
    cluster: GangCluster,
) -> None:
    staged(cluster, least=4)
    leader = Leader(cluster)
    leader.settle()
    for number in range(3):
        take(cluster, f"b-{number}")
    cluster.add_gang("four", 4)
    leader.settle()
    cluster.now += MEMBER
    leader.look()

    assert len(cluster.gated()) == 4
    seats = leader.gangs._planning.observed.cluster.seats(("ml", "dag"))
    assert [seat.node for seat in seats] == ["a-0"]


def test_pod_of_no_gang_that_takes_reserved_room_is_said(cluster: GangCluster) -> None:
    staged(cluster, least=4)
    leader = Leader(cluster)
    leader.settle()
    cluster.schedule()
    leader.settle()
    take(cluster, "a-3")
    leader.settle()

    assert "3 members not created yet have no room in railnet.io/leaf=a" in texts(cluster, "GangWaiting")[-1]
    assert "pods of no gang took it, which no gate keeps out" in texts(cluster, "GangWaiting")[-1]


def test_placement_of_members_that_come_one_after_the_other_is_said_once(cluster: GangCluster) -> None:
    """Four batches of pods of a gang whose number is smaller than its job's."""
    owner = cluster.add_job("bert", 4, least=1)
    leader = Leader(cluster)
    for rank in range(4):
        cluster.add_pod(f"bert-{rank}", "bert", owner=owner, least=1)
        leader.settle()
        cluster.now += 0.5
    assert texts(cluster, "GangPlaced") == []
    cluster.now += 0.5
    leader.settle()
    cluster.schedule()
    leader.settle()

    assert texts(cluster, "GangPlaced") == ["4 members placed in railnet.io/leaf=a"]


def test_placement_in_several_domains_names_all_of_them(cluster: GangCluster) -> None:
    cluster.add_gang("bert", 6, constraint='{"preferred":{"topologies":[{"key":"railnet.io/leaf"}]}}')
    Leader(cluster).settle()

    assert texts(cluster, "GangPlaced") == [
        "6 members placed in 2 domains: 4 in railnet.io/leaf=a, 2 in railnet.io/leaf=b"
    ]


def test_gang_that_becomes_whole_is_said_once_more(cluster: GangCluster) -> None:
    owner = staged(cluster, least=2)
    leader = Leader(cluster)
    leader.settle()
    cluster.now += 1
    leader.settle()
    cluster.schedule()
    cluster.add_pod("dag-1", "dag", owner=owner, least=2)
    leader.settle()
    cluster.now += 1
    leader.settle()

    placed = texts(cluster, "GangPlaced")
    assert placed[0].startswith("1 member placed in railnet.io/leaf=a; room for 3 members not created yet is kept")
    assert placed[1:] == ["2 members placed in railnet.io/leaf=a"]
