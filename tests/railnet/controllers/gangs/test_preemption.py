"""Gangs that give way to one of a higher priority, and those that do not."""

import pytest

from railnet.apiserver.request import Request
from tests.railnet.controllers.cluster_in_memory import Refusal
from tests.railnet.controllers.gangs.eviction_rounds import said, take, three_leaves, ungate
from tests.railnet.controllers.gangs.gang_cluster import GangCluster, Leader


@pytest.fixture
def cluster() -> GangCluster:
    return three_leaves()


def test_whole_gang_gives_way_to_one_of_higher_priority(cluster: GangCluster) -> None:
    for name in ("low-a", "low-b", "low-c"):
        cluster.add_gang(name, 4, priority=10)
    leader = Leader(cluster)
    leader.settle()
    cluster.schedule()
    leader.settle()
    cluster.add_gang("bert", 3, priority=100)
    leader.settle()

    leaving = [name for name, pod in cluster.pods().items() if "deletionTimestamp" in pod["metadata"]]
    assert len(leaving) == 4
    (victim,) = {name[:5] for name in leaving}
    assert cluster.requests["create pods"] == 4
    assert "gang ml/bert of priority 100 gets its place" in said(cluster, "GangPreempted")[0]
    assert f"1 gang (ml/{victim}) of lower priority to leave" in said(cluster, "GangWaiting")[0]

    cluster.make_again(victim, 4, priority=10)  # they wait behind the gang that preempts
    leader.settle()
    assert len(cluster.gated()) == 7
    cluster.end_leaving()
    leader.settle()
    cluster.schedule()
    leader.settle()
    assert len(cluster.gated()) == 4
    assert {pod for pod in cluster.nodes() if pod.startswith("bert")} == {"bert-0", "bert-1", "bert-2"}
    assert cluster.requests["create pods"] == 4  # the victims were asked once


BESIDE_NOTHING = {
    "podAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"labelSelector": {"matchLabels": {"app": "nothing"}}, "topologyKey": "kubernetes.io/hostname"}
        ]
    }
}


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({"affinity": BESIDE_NOTHING}, "because its pods have required pod affinity, which Railnet cannot check"),
        ({"resourceClaims": [{"name": "gpu"}]}, "because its pods have resource claims, which Railnet cannot check"),
        (
            {"schedulingGates": [{"name": "railnet.io/gang"}, {"name": "others.io/quota"}]},
            "because its pods have scheduling gates of others, which Railnet cannot check",
        ),
        ({"nodeSelector": {"disk": "none"}}, "no node is as its selectors and tolerations require"),
    ],
    ids=["pod affinity", "resource claims", "gates", "selector"],
)
def test_unschedulable_gang_of_high_priority_has_nothing_evicted_and_says_why(
    cluster: GangCluster, spec: dict[str, object], text: str
) -> None:
    for name in ("low-a", "low-b", "low-c"):
        cluster.add_gang(name, 4, priority=10)
    leader = Leader(cluster)
    leader.settle()
    cluster.schedule()
    cluster.add_gang("bert", 3, priority=100, spec=spec)
    leader.settle()

    assert cluster.requests["create pods"] == 0
    assert len(cluster.nodes()) == 12
    events = [message for _, about, message in cluster.events if about == "Job/bert"]
    assert len(events) == 1
    assert text in events[0]


def test_gang_that_does_not_preempt_waits(cluster: GangCluster) -> None:
    for name in ("low-a", "low-b", "low-c"):
        cluster.add_gang(name, 4, priority=10)
    leader = Leader(cluster)
    leader.settle()
    cluster.schedule()
    cluster.add_gang("bert", 3, priority=100, spec={"preemptionPolicy": "Never"})
    leader.settle()

    assert cluster.requests["create pods"] == 0
    assert len(cluster.gated()) == 3


def test_gang_of_the_same_priority_and_bare_pods_are_no_victims(cluster: GangCluster) -> None:
    cluster.add_gang("same", 4, priority=100)
    for name in ("bare-a", "bare-b"):
        for rank in range(4):
            cluster.add_pod(f"{name}-{rank}", name, least=4, priority=1)
    leader = Leader(cluster)
    leader.settle()
    cluster.schedule()
    cluster.add_gang("bert", 3, priority=100)
    leader.settle()

    assert cluster.requests["create pods"] == 0
    assert cluster.gated() == ["bert-0", "bert-1", "bert-2"]


def test_one_pod_of_high_priority_does_not_let_its_gang_take_the_place_of_others(cluster: GangCluster) -> None:
    """A quota may let a user have one such pod, and no gang of them."""
    for name in ("low-a", "low-b", "low-c"):
        cluster.add_gang(name, 4, priority=10)
    leader = Leader(cluster)
    leader.settle()
    cluster.schedule()
    owner = cluster.add_job("bert", 3)
    for rank, priority in enumerate((100, 10, 10)):
        cluster.add_pod(f"bert-{rank}", "bert", owner=owner, priority=priority)
    leader.settle()

    assert cluster.requests["create pods"] == 0
    assert len(cluster.gated()) == 3


def test_gang_that_came_back_elsewhere_is_not_evicted_again_while_its_old_pods_end(cluster: GangCluster) -> None:
    """A kubelet may need an hour for that, and a Job makes the new pods at once."""
    for name in ("same-b", "same-c"):
        cluster.add_gang(name, 4, priority=100)
    leader = Leader(cluster)
    leader.settle()
    cluster.add_gang("low", 2, priority=10)
    leader.settle()
    cluster.schedule()
    leader.settle()
    cluster.add_gang("bert", 4, priority=100)
    leader.settle()
    assert cluster.requests["create pods"] == 2
    for number in range(2):  # large enough for the gang that left
        cluster.add_node(f"d-{number}", "d")
    for _ in range(4):
        cluster.make_again("low", 2, priority=10)
        leader.settle()
        cluster.schedule()
        leader.settle()
    assert cluster.requests["create pods"] == 2
    assert {leaf for pod, leaf in cluster.leaves().items() if pod.startswith("low-again")} == {"d"}

    cluster.end_leaving()
    leader.settle()
    assert {leaf for pod, leaf in cluster.leaves().items() if pod.startswith("bert")} == {"c"}
    assert cluster.requests["create pods"] == 2


@pytest.mark.parametrize("fields", [{"schedulerName": "volcano"}, {}])
def test_gang_that_railnet_did_not_place_does_not_give_way(cluster: GangCluster, fields: dict[str, str]) -> None:
    """Its pods would come back without a gate, take the same place, and be evicted again without end."""
    for gang in ("low-a", "low-b", "low-c"):
        cluster.add_gang(gang, 4, priority=10)
    for name in cluster.gated():
        ungate(cluster, name, **fields)
    cluster.schedule()
    leader = Leader(cluster)
    leader.settle()
    cluster.add_gang("bert", 3, priority=100)
    leader.settle()

    assert cluster.requests["create pods"] == 0
    assert len(cluster.gated()) == 3


def test_gang_of_another_scheduler_has_no_room_kept_and_takes_no_place(cluster: GangCluster) -> None:
    for gang in ("low-a", "low-b"):
        cluster.add_gang(gang, 4, priority=10)
    leader = Leader(cluster)
    leader.settle()
    cluster.schedule()
    cluster.add_gang("volcanos", 8, least=8, priority=100)
    for rank in range(8):
        ungate(cluster, f"volcanos-{rank}", schedulerName="volcano")
    cluster.bind("volcanos-0", "c-0")
    cluster.add_gang("bert", 3, priority=50)
    leader.settle()

    assert cluster.requests["create pods"] == 0
    assert cluster.gated() == []


def test_nothing_is_evicted_for_members_that_do_not_exist(cluster: GangCluster) -> None:
    """A quota may let a user have one pod of high priority; the number of members is the user's word."""
    for gang in ("low-a", "low-b", "low-c"):
        cluster.add_gang(gang, 4, priority=10)
    leader = Leader(cluster)
    leader.settle()
    cluster.schedule()
    cluster.add_pod("bert-0", "bert", least=3, priority=100)
    leader.settle()
    assert cluster.requests["create pods"] == 0
    for rank in (1, 2):
        cluster.add_pod(f"bert-{rank}", "bert", least=3, priority=100)
    leader.settle()

    assert cluster.requests["create pods"] == 4


def test_gang_that_a_budget_keeps_in_its_place_does_not_keep_others_waiting_for_ever(cluster: GangCluster) -> None:
    """Any author of pods may write such a budget."""
    for gang in ("low-a", "low-b", "low-c"):
        cluster.add_gang(gang, 4, priority=10)
    leader = Leader(cluster)
    leader.settle()
    cluster.schedule()
    leader.settle()

    def forbid(request: Request) -> None:
        if request.verb.right == "create" and str(request.about).startswith("pods/low-a"):
            raise Refusal(429, "Cannot evict pod as it would violate the pod's disruption budget.")

    cluster.interfere = forbid
    cluster.add_gang("bert", 3, priority=100, created="1970-01-01T00:16:40Z")
    leader.settle()
    first = {gang for reason, gang, _ in cluster.events if reason == "GangPreempted"}
    assert first == {"Job/low-a"}
    cluster.now += 299
    leader.settle()
    assert not any("deletionTimestamp" in pod["metadata"] for pod in cluster.pods().values())
    cluster.now += 1
    leader.settle()
    cluster.end_leaving()
    leader.settle()

    assert len({gang for reason, gang, _ in cluster.events if reason == "GangPreempted"}) == 2
    assert len(cluster.nodes()) == 8
    assert cluster.gated() == []


def test_gang_that_needs_the_place_of_a_pod_of_no_gang_keeps_nothing_free(cluster: GangCluster) -> None:
    """It may be of a Deployment, which never ends."""
    for node in [f"{leaf}-{number}" for leaf in ("a", "b", "c") for number in range(4)][:-1]:
        take(cluster, node)
    cluster.add_gang("large", 2)
    leader = Leader(cluster)
    leader.settle()
    cluster.now += 1000
    cluster.add_gang("small", 1)
    leader.settle()

    assert sorted(cluster.gated()) == ["large-0", "large-1"]
    assert cluster.leaves()["small-0"] == "c"


# A move costs no job.
