"""PodGroups while leaders die, or are two."""

import pytest

from railnet.apiserver.request import Request
from tests.railnet.controllers.gangs.gang_cluster import LEAF, GangCluster, Leader, work
from tests.railnet.controllers.gangs.pod_group_state import groups, nominated, texts


def test_two_leaders_create_one_pod_group(cluster: GangCluster) -> None:
    cluster.add_gang("bert", 4, grouped=True)
    old, new = Leader(cluster), Leader(cluster)
    old.learn()
    old.look()
    for leader in (old, new):
        leader.learn()
        leader.gangs.reconcile("all gangs")
        work(leader.gangs.roots.queue, leader.gangs.roots.reconcile)
        leader.gangs.reconcile("all gangs")
    for leader in (old, new):
        work(leader.gangs.groups.queue, leader.gangs.groups.reconcile)

    assert cluster.requests["create podgroups"] == 2
    assert len(groups(cluster)) == 1
    assert texts(cluster, "GangRefused") == []


def test_pods_that_two_leaders_told_two_leaves_are_not_started_in_two(cluster: GangCluster) -> None:
    """The second leader knows that a node has gone, so it chooses another leaf."""
    cluster.add_gang("bert", 4, grouped=True)
    first, second = Leader(cluster), Leader(cluster)
    first.learn()
    cluster.remove("/api/v1/nodes/a-3")
    second.learn()
    for leader in (first, second):
        leader.gangs.reconcile("all gangs")
        work(leader.gangs.roots.queue, leader.gangs.roots.reconcile)
        leader.gangs.reconcile("all gangs")
    for _ in range(2):
        pod = first.gangs.writes.queue.get()
        assert pod is not None
        first.gangs.writes.reconcile(pod)
    work(second.gangs.writes.queue, second.gangs.writes.reconcile)
    assert sorted(node[0] for node in nominated(cluster).values()) == ["a", "a", "b", "b"]
    second.settle()

    assert [group.get("schedulingConstraints") for group in groups(cluster)] == [{"topology": [{"key": LEAF}]}]
    assert set(nominated(cluster).values()) == {"b-0", "b-1", "b-2", "b-3"}


class Died(BaseException):
    """The process of the leader has ended."""


@pytest.mark.parametrize("dies_at", range(1, 11))
@pytest.mark.parametrize("done", [False, True], ids=["before", "after"])
def test_leader_that_dies_at_any_write_has_a_successor_that_reaches_the_same_end(
    cluster: GangCluster, dies_at: int, *, done: bool
) -> None:
    cluster.add_gang("bert", 4, grouped=True)
    writes = 0

    def dies(request: Request) -> None:
        nonlocal writes
        if request.verb.right in ("patch", "create"):
            writes += 1
            if writes == dies_at:
                raise Died

    setattr(cluster, "answered" if done else "interfere", dies)
    try:
        Leader(cluster).settle()
    except Died:
        Leader(cluster).settle()
    cluster.schedule()

    assert [group["schedulingPolicy"]["gang"] for group in groups(cluster)] == [{"minCount": 4}]
    assert {node[0] for node in cluster.nodes().values()} == {"a"}
    assert len(cluster.nodes()) == 4
