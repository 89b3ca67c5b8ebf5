"""Faults of the placement of gangs that are known and not repaired: each test fails, and says what should be."""

import pytest

from railnet.gangs import planning
from tests.railnet.controllers.gangs.gang_cluster import GangCluster, Leader, path
from tests.railnet.controllers.gangs.test_absent_members import staged

MEMBER = planning.MEMBER_SECONDS


@pytest.fixture
def cluster() -> GangCluster:
    """Two leaves of four nodes with eight GPUs."""
    gang_cluster = GangCluster()
    for leaf in ("a", "b"):
        for number in range(4):
            gang_cluster.add_node(f"{leaf}-{number}", leaf)
    return gang_cluster


@pytest.mark.xfail(
    strict=True, reason="that all members existed is known to the leader that saw it, and to the last member"
)
def test_next_leader_does_not_evict_a_gang_that_was_whole_when_its_last_member_goes(cluster: GangCluster) -> None:
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
    cluster.remove(path("dag-3"))
    Leader(cluster).settle()

    assert cluster.requests["create pods"] == 0
