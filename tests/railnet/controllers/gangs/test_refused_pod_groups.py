"""PodGroups that are refused, or are of someone else: the gang waits, says why, and keeps no room from others."""

import pytest

from railnet.apiserver.request import Request
from tests.railnet.controllers.cluster_in_memory import Refusal
from tests.railnet.controllers.gangs.gang_cluster import GangCluster, JsonObject, Leader, path
from tests.railnet.controllers.gangs.pod_group_state import NAME, PATH, groups, hear, nominated, texts


def test_pod_group_of_someone_else_is_left_alone(cluster: GangCluster) -> None:
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


def test_api_that_serves_no_pod_groups_any_more_is_said_and_tried_again(cluster: GangCluster) -> None:
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
def test_gang_whose_pod_group_is_refused_keeps_no_room_from_others(cluster: GangCluster, status: int) -> None:
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


def test_pod_group_that_is_refused_for_long_is_asked_for_more_and_more_rarely(cluster: GangCluster) -> None:
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


def test_pods_with_several_priority_classes_are_refused(cluster: GangCluster) -> None:
    owner = cluster.add_job("bert", 2)
    for rank, name in enumerate(("production", "iteration")):
        cluster.add_pod(f"bert-{rank}", "bert", owner=owner, grouped=True, spec={"priorityClassName": name})
    Leader(cluster).settle()

    assert groups(cluster) == []
    assert any("several PriorityClasses" in text for text in texts(cluster, "GangRefused"))


def test_pod_group_of_someone_else_is_not_deleted(cluster: GangCluster) -> None:
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
