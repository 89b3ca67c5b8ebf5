"""Gates that the API server does not let be removed: the scheduler keeps no room for the pods, and few requests are sent for them."""

from collections.abc import Callable
from typing import Any

import pytest

from railnet.apiserver.request import Request
from tests.railnet.controllers.cluster_in_memory import Refusal
from tests.railnet.controllers.gangs.gang_cluster import CONSTRAINT, GangCluster, Leader


@pytest.fixture
def cluster() -> GangCluster:
    """One leaf of four nodes with eight GPUs."""
    gang_cluster = GangCluster()
    for number in range(4):
        gang_cluster.add_node(f"a-{number}", "a")
    return gang_cluster


def is_of_gate(request: Request) -> bool:
    return request.verb.right == "patch" and not request.path.endswith("/status")


def is_of_status(request: Request) -> bool:
    return request.verb.right == "patch" and request.path.endswith("/status")


def is_withdrawal(request: Request) -> bool:
    return is_of_status(request) and "None" in str(request.body)


def refuse(cluster: GangCluster, status: int, *refused: Callable[[Request], bool]) -> None:
    def interfere(request: Request) -> None:
        if any(is_refused(request) for is_refused in refused):
            raise Refusal(status, "a policy")

    cluster.interfere = interfere


def wait(cluster: GangCluster, leader: Leader, times: int) -> None:
    for _ in range(times):
        leader.settle()
        cluster.now += 31


def nominated(cluster: GangCluster) -> list[str]:
    return [name for name, pod in cluster.pods().items() if "nominatedNodeName" in pod["status"]]


@pytest.mark.parametrize("status", [422, 403], ids=["by a policy", "by a policy or for a missing right"])
def test_pod_whose_gate_cannot_be_removed_keeps_no_room_in_the_scheduler(cluster: GangCluster, status: int) -> None:
    """A policy of others refuses the patch, so the pod never starts; the scheduler would keep its node from pods of no gang."""
    cluster.add_gang("bert", 4)
    leader = Leader(cluster)
    refuse(cluster, status, is_of_gate)
    wait(cluster, leader, 20)
    assert nominated(cluster) == []
    assert cluster.requests["patch pods/status"] == 2 * 4  # a nomination, and its withdrawal
    assert [reason for reason, _, _ in cluster.events if reason == "GangRefused"]

    refuse(cluster, status)
    wait(cluster, leader, 2)
    assert cluster.gated() == []


def test_gate_that_is_refused_for_a_while_is_removed_although_the_nomination_cannot_be_withdrawn(
    cluster: GangCluster,
) -> None:
    cluster.add_gang("bert", 2)
    leader = Leader(cluster)
    refuse(cluster, 422, is_of_gate, is_withdrawal)
    wait(cluster, leader, 20)
    assert len(cluster.gated()) == len(nominated(cluster)) == 2
    assert cluster.requests["patch pods/status"] < 40

    refuse(cluster, 422, is_withdrawal)
    wait(cluster, leader, 2)
    assert cluster.gated() == []


def test_pod_whose_gang_cannot_be_read_any_more_keeps_no_room_in_the_scheduler(cluster: GangCluster) -> None:
    """A leader nominated it and died, and its author changed it meanwhile."""
    cluster.add_gang("bert", 2)

    def change(pod: dict[str, Any]) -> None:
        pod["status"]["nominatedNodeName"] = "a-0"
        pod["metadata"]["annotations"][CONSTRAINT] = "no JSON"

    cluster.change("bert-0", change)
    Leader(cluster).settle()

    assert nominated(cluster) == []


def test_pod_that_is_of_no_gang_any_more_keeps_no_room_while_its_gate_cannot_be_removed(cluster: GangCluster) -> None:
    cluster.add_gang("bert", 1)

    def change(pod: dict[str, Any]) -> None:
        pod["status"]["nominatedNodeName"] = "a-0"
        pod["metadata"]["labels"] = {}

    cluster.change("bert-0", change)
    refuse(cluster, 422, is_of_gate)
    wait(cluster, Leader(cluster), 20)

    assert nominated(cluster) == []


@pytest.mark.parametrize("refused", [is_of_gate, is_of_status], ids=["its gate", "its nomination"])
def test_pod_that_changes_all_the_time_is_not_written_each_time(
    cluster: GangCluster, refused: Callable[[Request], bool]
) -> None:
    cluster.add_gang("bert", 1)
    leader = Leader(cluster)
    refuse(cluster, 422, is_of_gate, refused)
    for number in range(600):  # of a minute
        cluster.change("bert-0", lambda pod, number=number: pod["status"].update(message=str(number)))
        leader.settle()
        cluster.now += 0.1

    assert cluster.requests["patch pods"] < 20
    assert cluster.requests["patch pods/status"] < 20


def test_patch_that_is_stale_is_sent_again_as_soon_as_the_pod_is_reported(cluster: GangCluster) -> None:
    cluster.add_gang("bert", 1)
    leader = Leader(cluster)
    leader.learn()
    for number in range(3):
        cluster.change("bert-0", lambda pod, number=number: pod["status"].update(message=str(number)))
        leader.look()
        assert cluster.gated() == ["bert-0"]
        leader.learn()
    leader.look()

    assert cluster.gated() == []
