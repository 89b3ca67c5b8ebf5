"""Two leaders at one time, of which the first does not know that it is followed: what they write of one gang may not fit together."""

import pytest

from railnet.controllers.gangs.placement import GangPlacement
from railnet.gangs import evictions
from tests.railnet.controllers.gangs.eviction_rounds import round_of, said
from tests.railnet.controllers.gangs.gang_cluster import GangCluster, Leader, work

SPREAD = '{"preferred":{"topologies":[{"key":"railnet.io/leaf"}]}}'


def read_owners(gangs: GangPlacement) -> None:
    gangs.reconcile("all gangs")
    work(gangs.roots.queue, gangs.roots.reconcile)


def place_in_both_leaves(cluster: GangCluster) -> Leader:
    """Have each leader place two pods of a gang, each in another leaf, and return the second leader: the first one is slow, and ends."""
    first, second = Leader(cluster), Leader(cluster)
    first.learn()
    cluster.remove("/api/v1/nodes/a-3")
    second.learn()
    for leader in (first, second):
        read_owners(leader.gangs)
        leader.gangs.reconcile("all gangs")
    for _ in range(2):
        pod = first.gangs.writes.queue.get()
        assert pod is not None
        first.gangs.writes.reconcile(pod)
        first.gangs.writes.queue.done(pod)
    work(second.gangs.writes.queue, second.gangs.writes.reconcile)
    assert sorted(filter(None, cluster.leaves().values())) == ["a", "a", "b", "b"]
    return second


@pytest.mark.parametrize("bound", [False, True], ids=["no member has a node", "all members have nodes"])
@pytest.mark.parametrize("least", [None, 4], ids=["all pods of the job", "min-available"])
def test_two_leaders_that_see_different_nodes_do_not_split_a_gang(
    cluster: GangCluster, bound: bool, least: int | None
) -> None:
    cluster.add_gang("bert", 4, least=least)
    leader = place_in_both_leaves(cluster)
    if bound:
        cluster.schedule()
    for _ in range(3):
        round_of(cluster, leader, 4, least=least)

    assert set(cluster.leaves().values()) == {"b"}
    assert cluster.nodes().keys() == cluster.pods().keys()
    assert cluster.requests["create pods"] == 4
    (text,) = said(cluster, "GangEvicted")
    assert text.startswith(
        "members are in 2 domains: 2 in railnet.io/leaf=a, 2 in railnet.io/leaf=b, and the gang requires one domain; all 4 are evicted"
    )


def test_next_leader_goes_on_with_the_eviction_of_a_gang_in_two_domains(cluster: GangCluster) -> None:
    """It finds one member, which is in one domain, and its mark; no domain has failed, so all are tried again."""
    cluster.add_gang("bert", 4)
    leader = place_in_both_leaves(cluster)
    cluster.schedule()
    leader.learn()
    leader.look()
    (marked,) = [name for name, pod in cluster.pods().items() if "evicted" in str(pod["metadata"]["annotations"])]
    for name in cluster.pods().keys() - {marked}:
        cluster.remove(f"/api/v1/namespaces/ml/pods/{name}")
    for number in range(4):
        cluster.remove(f"/api/v1/nodes/b-{number}")
    cluster.add_node("a-3", "a")
    leader = Leader(cluster)
    for _ in range(3):
        round_of(cluster, leader, 4)

    assert set(cluster.leaves().values()) == {"a"}
    assert cluster.nodes().keys() == cluster.pods().keys()


def test_gang_in_two_domains_whose_job_an_eviction_would_fail_stays_and_says_so(cluster: GangCluster) -> None:
    owner = cluster.add_job("bert", 4, {"podFailurePolicy": None})
    for rank in range(4):
        cluster.add_pod(f"bert-{rank}", "bert", owner=owner)
    leader = place_in_both_leaves(cluster)
    leader.settle()
    seats = leader.gangs._planning.observed.cluster.seats(("ml", "bert"))
    assert len(seats) == 4
    cluster.schedule()
    leader.settle()

    assert cluster.requests["create pods"] == 0
    (text,) = {*said(cluster, "GangWaiting")}
    assert text.startswith("members are in 2 domains: 2 in railnet.io/leaf=a, 2 in railnet.io/leaf=b")
    assert "the gang is not evicted, because Job bert counts evicted pods as failures" in text


def test_gang_that_prefers_a_domain_may_be_in_two(cluster: GangCluster) -> None:
    cluster.add_gang("bert", 6, constraint=SPREAD)
    leader = Leader(cluster)
    leader.settle()
    cluster.schedule()
    cluster.now += evictions.STUCK_SECONDS + 1
    Leader(cluster).settle()

    assert set(cluster.leaves().values()) == {"a", "b"}
    assert cluster.requests["create pods"] == 0
