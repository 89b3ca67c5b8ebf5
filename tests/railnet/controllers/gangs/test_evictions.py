"""Gangs that are evicted: because another pod took their place after they were placed, or for a gang of higher priority."""

from typing import Any

import pytest

from railnet.apiserver.request import Request
from railnet.gangs import evictions
from tests.railnet.controllers.cluster_in_memory import Refusal
from tests.railnet.controllers.gangs.gang_cluster import GangCluster, Leader, path, work

STUCK = evictions.STUCK_SECONDS


@pytest.fixture
def cluster() -> GangCluster:
    """Three leaves of four nodes with eight GPUs."""
    made = GangCluster()
    for leaf in ("a", "b", "c"):
        for number in range(4):
            made.add_node(f"{leaf}-{number}", leaf)
    return made


def said(cluster: GangCluster, reason: str) -> list[str]:
    return [text for found, _, text in cluster.events if found == reason]


def take(cluster: GangCluster, node: str) -> None:
    """Bind a pod that is of no gang, as another scheduler or a DaemonSet does."""
    cluster.add_pod(f"foreign-{node}", "none")

    def foreign(pod: dict[str, object]) -> None:
        pod["metadata"].update(labels={})  # type: ignore[attr-defined]
        pod["spec"].pop("schedulingGates")  # type: ignore[attr-defined]

    cluster.change(f"foreign-{node}", foreign)
    cluster.bind(f"foreign-{node}", node)


def place_and_take(cluster: GangCluster, leader: Leader, leaf: str) -> None:
    """Have a gang placed in a leaf, and a node of it taken before the scheduler binds its pods."""
    leader.settle()
    take(cluster, f"{leaf}-0")
    cluster.schedule()
    leader.settle()


def round_of(cluster: GangCluster, leader: Leader, pods: int, **fields: object) -> None:
    """Let everyone do what is to be done once: leader, kubelets, Job controller, scheduler."""
    leader.settle()
    cluster.end_leaving()
    cluster.make_again("bert", pods, **fields)
    leader.settle()
    cluster.schedule()
    leader.settle()


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
    cluster.now += evictions.COOL_SECONDS + 80 + 1  # the Job controller makes four pods again after 80 s
    leader.settle()

    assert cluster.gated() == []


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


def ungate(cluster: GangCluster, name: str, **fields: object) -> None:
    """Have a pod as it is where the webhook leaves it alone, or is down."""

    def change(pod: dict[str, dict[str, object]]) -> None:
        pod["spec"].pop("schedulingGates")
        pod["spec"].update(fields)

    cluster.change(name, change)


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
