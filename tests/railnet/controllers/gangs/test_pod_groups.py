"""Gangs whose pods wait for a PodGroup: when it is created, what it is, and that its pods are told their place before."""

from typing import Any

import pytest

from railnet.apiserver.request import Request
from railnet.jobs.gang_engine import pod_group_name
from tests.railnet.controllers.cluster_in_memory import Refusal
from tests.railnet.controllers.gangs.gang_cluster import LEAF, GangCluster, JsonObject, Leader, path, work

PREFERS_A_LEAF = '{"preferred":{"topologies":[{"key":"railnet.io/leaf"}]}}'
NAME = pod_group_name("bert")
PATH = f"/apis/scheduling.k8s.io/v1beta1/namespaces/ml/podgroups/{NAME}"


def two_leaves() -> GangCluster:
    cluster = GangCluster()
    for leaf in "ab":
        for number in range(4):
            cluster.add_node(f"{leaf}-{number}", leaf)
    return cluster


def groups(cluster: GangCluster) -> list[JsonObject]:
    return [one["spec"] for one in cluster.pod_groups().values()]


def hear(leader: Leader) -> None:
    """Settle, and have the leader take in what came of its last writes, which changed nothing."""
    leader.settle()
    leader.look()


def texts(cluster: GangCluster, reason: str) -> list[str]:
    return [text for said, _, text in cluster.events if said == reason]


def nominated(cluster: GangCluster) -> dict[str, str]:
    return {name: one["status"].get("nominatedNodeName", "") for name, one in cluster.pods().items()}


def test_pod_group_is_created_when_all_pods_are_nominated_and_know_their_place() -> None:
    cluster = two_leaves()
    cluster.add_gang("bert", 4, grouped=True, spec={"priorityClassName": "production"})
    leader = Leader(cluster)
    leader.learn()
    leader.look()

    assert set(nominated(cluster).values()) == {"a-0", "a-1", "a-2", "a-3"}
    assert all("railnet.io/placement" in one["metadata"]["annotations"] for one in cluster.pods().values())
    assert groups(cluster) == []

    leader.settle()
    (group,) = groups(cluster)
    assert group == {
        "schedulingPolicy": {"gang": {"minCount": 4}},
        "disruptionMode": {"all": {}},
        "schedulingConstraints": {"topology": [{"key": LEAF}]},
        "priorityClassName": "production",
    }
    (owner,) = cluster.pod_groups()[NAME]["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"]) == ("Job", "bert")
    assert cluster.leaves() == dict.fromkeys(cluster.pods())  # nothing is written into their specification

    cluster.schedule()
    leader.settle()
    assert [reason for reason, _, _ in cluster.events] == ["GangPlaced"]
    assert (cluster.requests["create podgroups"], cluster.requests["get podgroups"]) == (1, 0)


def test_members_that_do_not_exist_are_waited_for() -> None:
    cluster = two_leaves()
    owner = cluster.add_job("bert", 4)
    for rank in range(3):
        cluster.add_pod(f"bert-{rank}", "bert", owner=owner, grouped=True)
    leader = Leader(cluster)
    leader.settle()
    assert groups(cluster) == []

    cluster.add_pod("bert-3", "bert", owner=owner, grouped=True)
    leader.settle()
    assert [group["schedulingPolicy"] for group in groups(cluster)] == [{"gang": {"minCount": 4}}]


@pytest.mark.parametrize(("pods", "key"), [(4, LEAF), (6, "")])
def test_label_is_that_of_the_smallest_level_with_room(pods: int, key: str) -> None:
    cluster = two_leaves()
    cluster.add_gang("bert", pods, grouped=True, constraint=PREFERS_A_LEAF)
    Leader(cluster).settle()
    (group,) = groups(cluster)

    topology = group.get("schedulingConstraints", {}).get("topology", [])
    assert [one["key"] for one in topology] == ([key] if key else [])


def test_gang_without_room_gets_no_pod_group_and_one_that_is_too_large_is_refused() -> None:
    cluster = two_leaves()
    cluster.add_gang("bert", 5, grouped=True)
    Leader(cluster).settle()

    assert groups(cluster) == []
    (text,) = texts(cluster, "GangRefused")
    assert "make the gang smaller, or add nodes" in text


def test_place_that_is_lost_before_the_pod_group_exists_is_chosen_again() -> None:
    cluster = two_leaves()
    cluster.add_gang("bert", 4, grouped=True)
    leader = Leader(cluster)
    leader.learn()
    leader.look()
    assert set(nominated(cluster).values()) == {"a-0", "a-1", "a-2", "a-3"}
    cluster.remove("/api/v1/nodes/a-2")
    before = {name: one["metadata"]["uid"] for name, one in cluster.pods().items()}
    leader.settle()

    assert set(nominated(cluster).values()) == {"b-0", "b-1", "b-2", "b-3"}
    assert len(groups(cluster)) == 1
    assert {name: one["metadata"]["uid"] for name, one in cluster.pods().items()} == before


def test_place_that_is_lost_after_that_is_waited_for_and_nothing_is_evicted() -> None:
    cluster = two_leaves()
    cluster.add_gang("bert", 4, grouped=True)
    leader = Leader(cluster)
    leader.settle()
    for leaf in "ab":
        cluster.remove(f"/api/v1/nodes/{leaf}-0")
    condition = {"type": "PodGroupInitiallyScheduled", "status": "False", "message": "0/2 placements are available"}
    cluster.put(PATH, {**cluster.objects[PATH], "status": {"conditions": [condition]}})
    cluster.now += 61
    hear(leader)

    assert cluster.requests["create pods"] == 0
    assert any("0/2 placements are available" in text for text in texts(cluster, "GangWaiting"))


def test_pod_group_of_someone_else_is_left_alone() -> None:
    cluster = two_leaves()
    foreign: JsonObject = {
        "metadata": {"namespace": "ml", "name": NAME},
        "spec": {"schedulingPolicy": {"gang": {"minCount": 9}}},
    }
    cluster.put(PATH, foreign)
    cluster.add_gang("bert", 4, grouped=True)
    hear(Leader(cluster))

    assert groups(cluster) == [foreign["spec"]]
    (text,) = texts(cluster, "GangRefused")
    assert "someone else has created a PodGroup" in text


def test_api_that_serves_no_pod_groups_any_more_is_said_and_tried_again() -> None:
    cluster = two_leaves()
    cluster.add_gang("bert", 4, grouped=True)
    leader = Leader(cluster)

    def interfere(request: Request) -> None:
        if request.about.resource == "podgroups":
            raise Refusal(404, "the server could not find the requested resource")

    cluster.interfere = interfere
    hear(leader)
    (text,) = texts(cluster, "GangRefused")
    assert "serves no PodGroups" in text

    cluster.interfere = lambda request: None
    cluster.now += 61
    leader.settle()
    assert len(groups(cluster)) == 1


@pytest.mark.parametrize("status", [403, 404, 422], ids=["no right", "not served", "refused"])
def test_gang_whose_pod_group_is_refused_keeps_no_room_from_others(status: int) -> None:
    cluster = two_leaves()
    cluster.remove("/api/v1/nodes/b-3")
    cluster.add_gang("bert", 4, grouped=True)
    leader = Leader(cluster)

    def interfere(request: Request) -> None:
        if request.about.resource == "podgroups":
            raise Refusal(status)

    cluster.interfere = interfere
    hear(leader)
    cluster.add_gang("gpt", 4)
    leader.settle()
    cluster.schedule()
    assert [name for name in cluster.nodes() if name.startswith("gpt")] == [f"gpt-{rank}" for rank in range(4)]
    assert [name for name, node in nominated(cluster).items() if node] == []
    assert [len(texts(cluster, "GangRefused")), texts(cluster, "GangEvicted")] == [1, []]

    cluster.interfere = lambda request: None
    for rank in range(4):
        cluster.remove(path(f"gpt-{rank}"))
    cluster.now += 61
    leader.settle()
    assert len(groups(cluster)) == 1
    assert sorted(nominated(cluster).values()) == ["a-0", "a-1", "a-2", "a-3"]


def test_pod_group_that_is_refused_for_long_is_asked_for_more_and_more_rarely() -> None:
    cluster = two_leaves()
    cluster.add_gang("bert", 4, grouped=True)
    leader = Leader(cluster)

    def interfere(request: Request) -> None:
        if request.about.resource == "podgroups":
            raise Refusal(404)

    cluster.interfere = interfere
    tries = []
    for _ in range(16):
        hear(leader)
        tries.append(cluster.requests["create podgroups"])
        cluster.now += 60

    assert tries == [1, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 4, 5, 5, 5, 5]


def test_pods_with_several_priority_classes_are_refused() -> None:
    cluster = two_leaves()
    owner = cluster.add_job("bert", 2)
    for rank, name in enumerate(("production", "iteration")):
        cluster.add_pod(f"bert-{rank}", "bert", owner=owner, grouped=True, spec={"priorityClassName": name})
    Leader(cluster).settle()

    assert groups(cluster) == []
    assert any("several PriorityClasses" in text for text in texts(cluster, "GangRefused"))


def test_two_leaders_create_one_pod_group() -> None:
    cluster = two_leaves()
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


def test_pods_that_two_leaders_told_two_leaves_are_not_started_in_two() -> None:
    """The second leader knows that a node has gone, so it chooses another leaf."""
    cluster = two_leaves()
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


@pytest.mark.parametrize("done", [False, True], ids=["before", "after"])
def test_leader_that_dies_at_any_write_has_a_successor_that_reaches_the_same_end(*, done: bool) -> None:
    for dies_at in range(1, 11):
        cluster = two_leaves()
        cluster.add_gang("bert", 4, grouped=True)
        writes = 0

        def dies(request: Request, dies_at: int = dies_at) -> None:
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

        assert [group["schedulingPolicy"]["gang"] for group in groups(cluster)] == [{"minCount": 4}], dies_at
        assert {node[0] for node in cluster.nodes().values()} == {"a"}, dies_at
        assert len(cluster.nodes()) == 4, dies_at


def test_namespace_with_gangs_off_has_its_pods_start_each_by_itself() -> None:
    cluster = two_leaves()
    cluster.put("/api/v1/namespaces/ml", {"metadata": {"name": "ml", "labels": {"railnet.io/gang": "off"}}})
    cluster.add_gang("bert", 5, grouped=True)
    Leader(cluster).settle()

    assert groups(cluster) == [{"schedulingPolicy": {"basic": {}}}]


def test_later_pod_of_a_gang_behind_gates_follows_it_by_a_pod_group_without_a_label() -> None:
    cluster = two_leaves()
    cluster.add_gang("bert", 4)
    leader = Leader(cluster)
    leader.settle()
    cluster.schedule()
    leader.settle()
    cluster.remove(path("bert-3"))
    cluster.make_again("bert", 4, grouped=True)
    leader.settle()

    assert groups(cluster) == [{"schedulingPolicy": {"gang": {"minCount": 1}}, "disruptionMode": {"all": {}}}]
    (again,) = (name for name in cluster.pods() if "again" in name)
    assert nominated(cluster)[again] == "a-3"
    cluster.schedule()
    leader.settle()
    assert len(cluster.nodes()) == 4


def test_later_pod_behind_a_gate_follows_a_gang_of_a_pod_group() -> None:
    cluster = two_leaves()
    cluster.add_gang("bert", 4, grouped=True)
    leader = Leader(cluster)
    leader.settle()
    cluster.schedule()
    leader.settle()
    cluster.remove(path("bert-3"))
    cluster.make_again("bert", 4)
    leader.settle()

    (again,) = (name for name in cluster.pods() if "again" in name)
    assert cluster.gated() == []
    assert cluster.leaves()[again] == "a"


def test_gang_of_a_pod_group_gives_way_to_none() -> None:
    cluster = two_leaves()
    cluster.add_gang("bert", 4, grouped=True, priority=1)
    cluster.add_gang("gpt", 4, grouped=True, priority=1)
    leader = Leader(cluster)
    leader.settle()
    cluster.schedule()
    leader.settle()
    cluster.add_gang("high", 4, priority=2)
    leader.settle()

    assert cluster.requests["create pods"] == 0
    assert len(cluster.nodes()) == 8


def test_fewer_pods_start_together_when_the_gang_has_become_smaller() -> None:
    cluster = two_leaves()
    spec: dict[str, Any] = {"schedulingPolicy": {"gang": {"minCount": 9}}}
    labels = {"app.kubernetes.io/managed-by": "railnet"}
    cluster.put(PATH, {"metadata": {"namespace": "ml", "name": NAME, "labels": labels}, "spec": spec})
    cluster.add_gang("bert", 4, grouped=True)
    Leader(cluster).settle()

    assert groups(cluster) == [{"schedulingPolicy": {"gang": {"minCount": 4}}}]


def test_pod_group_goes_with_the_last_pod_and_pods_that_come_again_may_have_another_level() -> None:
    cluster = two_leaves()
    cluster.add_gang("bert", 4, grouped=True, constraint=PREFERS_A_LEAF)
    leader = Leader(cluster)
    leader.settle()
    cluster.schedule()
    leader.settle()
    for rank in range(4):
        cluster.remove(path(f"bert-{rank}"))
    leader.settle()
    assert groups(cluster) == []

    for leaf in "ab":
        cluster.remove(f"/api/v1/nodes/{leaf}-3")
    cluster.make_again("bert", 4, grouped=True, constraint=PREFERS_A_LEAF)
    leader.settle()
    (group,) = groups(cluster)
    assert "schedulingConstraints" not in group


def test_pod_group_of_someone_else_is_not_deleted() -> None:
    cluster = two_leaves()
    cluster.add_gang("bert", 4, grouped=True)
    leader = Leader(cluster)
    leader.settle()
    foreign = {"metadata": {"namespace": "ml", "name": NAME}, "spec": {"schedulingPolicy": {"basic": {}}}}
    cluster.remove(PATH)
    cluster.put(PATH, foreign)
    for rank in range(4):
        cluster.remove(path(f"bert-{rank}"))
    leader.settle()

    assert groups(cluster) == [foreign["spec"]]


def test_nomination_by_the_scheduler_is_left_to_it() -> None:
    cluster = two_leaves()
    cluster.add_gang("bert", 4, grouped=True)
    leader = Leader(cluster)
    leader.settle()
    cluster.schedule()
    for number in range(4):
        cluster.add_gang(f"other-{number}", 1, grouped=True, constraint=None)
    leader.settle()
    cluster.schedule()
    leader.settle()
    cluster.make_again("bert", 5, grouped=True)
    (again,) = (name for name in cluster.pods() if "again" in name)
    cluster.change(again, lambda one: one["status"].update(nominatedNodeName="a-3"))
    leader.settle()

    assert nominated(cluster)[again] == "a-3"


def test_members_without_room_do_not_keep_those_that_start_together_from_their_place() -> None:
    cluster = two_leaves()
    cluster.add_gang("bert", 5, grouped=True, least=3)
    leader = Leader(cluster)
    for _ in range(5):
        leader.learn()
        leader.look()

    assert [group["schedulingPolicy"]["gang"] for group in groups(cluster)] == [{"minCount": 3}]
    assert sorted(nominated(cluster).values()) == ["", "a-0", "a-1", "a-2", "a-3"]
