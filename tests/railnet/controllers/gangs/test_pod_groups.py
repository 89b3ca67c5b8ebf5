"""Gangs whose pods wait for a PodGroup: when it is created, what it is, and that its pods are told their place before."""

from typing import Any

import pytest

from tests.railnet.controllers.gangs.gang_cluster import LEAF, GangCluster, Leader, path
from tests.railnet.controllers.gangs.pod_group_state import NAME, PATH, groups, hear, nominated, texts

PREFERS_A_LEAF = '{"preferred":{"topologies":[{"key":"railnet.io/leaf"}]}}'


def test_pod_group_is_created_when_all_pods_are_nominated_and_know_their_place(cluster: GangCluster) -> None:
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


def test_members_that_do_not_exist_are_waited_for(cluster: GangCluster) -> None:
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
def test_label_is_that_of_the_smallest_level_with_room(cluster: GangCluster, pods: int, key: str) -> None:
    cluster.add_gang("bert", pods, grouped=True, constraint=PREFERS_A_LEAF)
    Leader(cluster).settle()
    (group,) = groups(cluster)

    topology = group.get("schedulingConstraints", {}).get("topology", [])
    assert [one["key"] for one in topology] == ([key] if key else [])


def test_gang_without_room_gets_no_pod_group_and_one_that_is_too_large_is_refused(cluster: GangCluster) -> None:
    cluster.add_gang("bert", 5, grouped=True)
    Leader(cluster).settle()

    assert groups(cluster) == []
    (text,) = texts(cluster, "GangRefused")
    assert "make the gang smaller, or add nodes" in text


def test_place_that_is_lost_before_the_pod_group_exists_is_chosen_again(cluster: GangCluster) -> None:
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


def test_place_that_is_lost_after_that_is_waited_for_and_nothing_is_evicted(cluster: GangCluster) -> None:
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


def test_namespace_with_gangs_off_has_its_pods_start_each_by_itself(cluster: GangCluster) -> None:
    cluster.put("/api/v1/namespaces/ml", {"metadata": {"name": "ml", "labels": {"railnet.io/gang": "off"}}})
    cluster.add_gang("bert", 5, grouped=True)
    Leader(cluster).settle()

    assert groups(cluster) == [{"schedulingPolicy": {"basic": {}}}]


def test_later_pod_of_a_gang_behind_gates_follows_it_by_a_pod_group_without_a_label(cluster: GangCluster) -> None:
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


def test_later_pod_behind_a_gate_follows_a_gang_of_a_pod_group(cluster: GangCluster) -> None:
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


def test_gang_of_a_pod_group_gives_way_to_none(cluster: GangCluster) -> None:
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


def test_fewer_pods_start_together_when_the_gang_has_become_smaller(cluster: GangCluster) -> None:
    spec: dict[str, Any] = {"schedulingPolicy": {"gang": {"minCount": 9}}}
    labels = {"app.kubernetes.io/managed-by": "railnet"}
    cluster.put(PATH, {"metadata": {"namespace": "ml", "name": NAME, "labels": labels}, "spec": spec})
    cluster.add_gang("bert", 4, grouped=True)
    Leader(cluster).settle()

    assert groups(cluster) == [{"schedulingPolicy": {"gang": {"minCount": 4}}}]


def test_pod_group_goes_with_the_last_pod_and_pods_that_come_again_may_have_another_level(cluster: GangCluster) -> None:
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


def test_nomination_by_the_scheduler_is_left_to_it(cluster: GangCluster) -> None:
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


def test_members_without_room_do_not_keep_those_that_start_together_from_their_place(cluster: GangCluster) -> None:
    cluster.add_gang("bert", 5, grouped=True, least=3)
    leader = Leader(cluster)
    for _ in range(5):
        leader.learn()
        leader.look()

    assert [group["schedulingPolicy"]["gang"] for group in groups(cluster)] == [{"minCount": 3}]
    assert sorted(nominated(cluster).values()) == ["", "a-0", "a-1", "a-2", "a-3"]
