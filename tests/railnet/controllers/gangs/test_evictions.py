"""Gangs that are evicted because another pod took their place after they were placed."""

import pytest

from railnet.gangs.evictions import COOL_SECONDS
from tests.railnet.controllers.gangs.eviction_rounds import (
    STUCK,
    place_and_take,
    round_of,
    said,
    take,
    three_leaves,
    ungate,
)
from tests.railnet.controllers.gangs.gang_cluster import GangCluster, Leader, path


@pytest.fixture
def cluster() -> GangCluster:
    return three_leaves()


def test_gang_whose_place_was_taken_goes_to_the_next_domain(cluster: GangCluster) -> None:
    cluster.add_gang("bert", 4)
    leader = Leader(cluster)
    place_and_take(cluster, leader, "a")
    assert len(cluster.nodes()) == 4  # three of the gang, and the foreign pod
    cluster.now += STUCK - 1
    leader.settle()
    assert cluster.requests["create pods"] == 0
    cluster.now += 1
    leader.settle()
    assert cluster.requests["create pods"] == 4
    round_of(cluster, leader, 4)

    assert {
        pod: leaf for pod, leaf in cluster.leaves().items() if pod.startswith("bert")
    }.keys() == cluster.nodes().keys() - {"foreign-a-0"}
    assert {leaf for pod, leaf in cluster.leaves().items() if pod.startswith("bert")} == {"b"}
    assert {pod["metadata"]["annotations"].get("railnet.io/placement") for pod in cluster.of("pods")} == {
        None,
        *(f'{{"domain":{{"railnet.io/leaf":"b"}},"attempt":2,"node":"b-{number}"}}' for number in range(4)),
    }
    (text,) = said(cluster, "GangEvicted")
    assert text.startswith("1 of 4 members had no node in railnet.io/leaf=a for 30 s")
    assert "all 4 are evicted" in text
    assert cluster.requests["create pods"] == 4


def test_eviction_counts_all_members_without_a_node(cluster: GangCluster) -> None:
    """The scheduler says so of one after the other, and the first one has its time over before the others."""
    cluster.add_gang("bert", 4)
    leader = Leader(cluster)
    leader.settle()
    for number in range(4):
        take(cluster, f"a-{number}")

    def unschedulable(pod: dict[str, object]) -> None:
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
        pod["status"] = {"phase": "Pending", "conditions": [condition]}

    for rank in range(4):
        cluster.change(f"bert-{rank}", unschedulable)
        leader.settle()
        cluster.now += 1
    cluster.now += STUCK - 4
    leader.settle()

    assert said(cluster, "GangEvicted")[0].startswith("4 of 4 members had no node in railnet.io/leaf=a")


def test_pods_that_are_stuck_are_evicted_last(cluster: GangCluster) -> None:
    """So a leader that dies leaves what tells the next one that the gang is to be evicted."""
    cluster.add_gang("bert", 4)
    leader = Leader(cluster)
    place_and_take(cluster, leader, "a")
    (stuck,) = [name for name in cluster.pods() if name not in cluster.nodes()]
    cluster.now += STUCK
    order: list[str] = []
    cluster.interfere = lambda request: order.append(request.about.name) if request.verb.right == "create" else None  # type: ignore[func-returns-value,union-attr]
    leader.settle()

    assert order[-1] == stuck
    assert len(order) == 4


def test_gang_is_evicted_three_times_and_then_left(cluster: GangCluster) -> None:
    for leaf in ("d", "e"):
        for number in range(4):
            cluster.add_node(f"{leaf}-{number}", leaf)
    cluster.add_gang("bert", 4)
    leader = Leader(cluster)
    leader.settle()
    for _ in range(6):
        (leaf,) = {leaf for pod, leaf in cluster.leaves().items() if pod.startswith("bert") and leaf}
        if f"foreign-{leaf}-0" not in cluster.pods():
            take(cluster, f"{leaf}-0")
        cluster.schedule()
        leader.settle()
        cluster.now += STUCK + 1
        leader.settle()
        cluster.end_leaving()
        cluster.make_again("bert", 4)
        leader.settle()

    assert cluster.requests["create pods"] == 3 * 4
    assert len(said(cluster, "GangEvicted")) == 3
    assert "it was evicted 3 times already" in said(cluster, "GangWaiting")[-1]
    assert [pod for pod in cluster.pods() if pod not in cluster.nodes()] != []


def test_pods_that_nothing_makes_again_are_never_deleted(cluster: GangCluster) -> None:
    for rank in range(4):
        cluster.add_pod(f"bare-{rank}", "bare", least=4)
    leader = Leader(cluster)
    place_and_take(cluster, leader, "a")
    cluster.now += STUCK
    leader.settle()

    assert cluster.requests["create pods"] == 0
    assert "pods that no other object makes again are never deleted" in said(cluster, "GangWaiting")[0]
    assert len(cluster.pods()) == 5


def test_late_member_without_a_node_does_not_end_enough_that_run(cluster: GangCluster) -> None:
    cluster.add_gang("bert", 4, least=3)
    leader = Leader(cluster)
    place_and_take(cluster, leader, "a")
    cluster.now += STUCK
    leader.settle()

    assert cluster.requests["create pods"] == 0
    assert "3 members have nodes, and min-available is 3" in said(cluster, "GangWaiting")[0]


def test_budget_delays_the_eviction_and_an_event_says_so(cluster: GangCluster) -> None:
    cluster.add_gang("bert", 4)
    leader = Leader(cluster)
    place_and_take(cluster, leader, "a")
    budget = [429] * 3
    cluster.refuse("create", budget, "Cannot evict pod as it would violate the pod's disruption budget.")
    cluster.now += STUCK
    leader.learn()
    leader.look()
    leader.look()
    assert len(cluster.pods()) == 5
    assert len(cluster.gated()) == 0
    round_of(cluster, leader, 4)
    round_of(cluster, leader, 4)

    assert budget == []
    assert {leaf for pod, leaf in cluster.leaves().items() if pod.startswith("bert")} == {"b"}
    assert [text for text in said(cluster, "GangEvicted") if "disruption budget" in text]


def test_gang_of_which_a_part_was_let_go_moves_as_a_whole(cluster: GangCluster) -> None:
    """A leader dies between two patches, and another pod takes the room of the rest."""
    cluster.add_gang("bert", 4)
    first = Leader(cluster)
    cluster.refuse("patch", [503, 503])
    first.learn()
    first.look()
    assert len(cluster.gated()) == 2
    take(cluster, "a-3")
    cluster.schedule()
    leader = Leader(cluster)
    leader.settle()
    cluster.now += STUCK - 1
    leader.settle()
    assert cluster.requests["create pods"] == 0
    cluster.now += 1
    round_of(cluster, leader, 4)
    round_of(cluster, leader, 4)

    assert {leaf for pod, leaf in cluster.leaves().items() if pod.startswith("bert")} == {"b"}
    assert len(cluster.nodes()) == 5
    assert cluster.requests["create pods"] == 2
    assert "2 members had no room for 30 s in railnet.io/leaf=a, where 2 others are" in said(cluster, "GangEvicted")[0]


def test_gang_that_has_started_is_not_evicted_for_a_member_that_is_made_again(cluster: GangCluster) -> None:
    cluster.add_gang("bert", 4)
    leader = Leader(cluster)
    leader.settle()
    cluster.schedule()
    leader.settle()
    cluster.remove(path("bert-0"))
    take(cluster, "a-0")
    cluster.make_again("bert", 4, created="1970-01-01T00:12:00Z")
    for _ in range(5):
        leader.settle()
        cluster.now += STUCK

    assert cluster.requests["create pods"] == 0
    assert len(cluster.gated()) == 1


def test_domain_that_failed_is_tried_again_when_it_has_cooled_down(cluster: GangCluster) -> None:
    for leaf in ("b", "c"):
        take(cluster, f"{leaf}-0")
    cluster.add_gang("bert", 4)
    leader = Leader(cluster)
    place_and_take(cluster, leader, "a")
    cluster.now += STUCK
    round_of(cluster, leader, 4)
    cluster.remove(path("foreign-a-0"))
    again = leader.settle()
    assert len(cluster.gated()) == 4
    assert again is not None
    assert "without 1 domain that failed before" in said(cluster, "GangWaiting")[-1]
    cluster.now += COOL_SECONDS + 80 + 1  # the Job controller makes four pods again after 80 s
    leader.settle()

    assert cluster.gated() == []


def test_gang_of_which_a_part_never_has_a_gate_is_evicted_three_times_and_then_left(cluster: GangCluster) -> None:
    """Its author chose the node of one pod, for example; so there is no annotation that counts."""
    for node in ("a-0", "a-1", "b-0", "b-1", "c-1", "c-2", "c-3"):
        take(cluster, node)
    cluster.add_gang("bert", 3)
    leader = Leader(cluster)
    ungate(cluster, "bert-0")
    cluster.bind("bert-0", "c-0")
    for _ in range(8):
        leader.settle()
        cluster.now += STUCK
        leader.settle()
        cluster.end_leaving()
        cluster.make_again("bert", 3)
        for name in cluster.gated():
            if name not in ("bert-1", "bert-2"):
                ungate(cluster, name)
                cluster.bind(name, "c-0")

    assert cluster.requests["create pods"] == 3
    assert "it was evicted 3 times already" in said(cluster, "GangWaiting")[-1]


def test_gang_that_runs_for_long_is_not_evicted_for_a_late_member_without_a_node(cluster: GangCluster) -> None:
    cluster.add_gang("bert", 4)
    leader = Leader(cluster)
    leader.settle()
    cluster.schedule()
    leader.settle()
    cluster.now += 3600
    cluster.remove(path("bert-0"))
    cluster.make_again("bert", 4, created="1970-01-01T01:10:00Z")
    leader.settle()
    take(cluster, "a-0")
    for _ in range(5):
        cluster.schedule()
        cluster.now += STUCK
        leader.settle()

    assert cluster.gated() == []  # the late member was let go, and another pod was faster
    assert cluster.requests["create pods"] == 0
    assert "the others have run for long" in said(cluster, "GangWaiting")[-1]


def test_gang_that_runs_for_long_is_not_evicted_when_two_members_are_made_again(cluster: GangCluster) -> None:
    cluster.add_gang("bert", 4)
    leader = Leader(cluster)
    leader.settle()
    cluster.schedule()
    leader.settle()
    cluster.now += 3600
    cluster.remove(path("bert-0"))
    cluster.make_again("bert", 4, created="1970-01-01T01:10:00Z")
    leader.settle()
    cluster.schedule()
    leader.settle()
    assert len(cluster.nodes()) == 4
    cluster.remove(path("bert-1"))
    take(cluster, "a-1")
    cluster.make_again("bert", 4, created="1970-01-01T01:10:30Z")
    for _ in range(5):
        leader.settle()
        cluster.now += STUCK

    assert cluster.requests["create pods"] == 0
    assert len(cluster.gated()) == 1


def test_eviction_that_a_conflict_refuses_is_tried_again(cluster: GangCluster) -> None:
    """The API server gives up when a pod changes all the time while it is evicted."""
    cluster.add_gang("bert", 4)
    leader = Leader(cluster)
    place_and_take(cluster, leader, "a")
    conflicts = [409, 409]
    cluster.refuse("create", conflicts, "the object has been modified")
    cluster.now += STUCK
    for _ in range(4):
        leader.settle()
        cluster.now += 1
    round_of(cluster, leader, 4)

    assert conflicts == []
    assert {leaf for pod, leaf in cluster.leaves().items() if pod.startswith("bert")} == {"b"}
