"""What a node's pod says of the node, and the line that the command prints of all nodes."""

from datetime import timedelta
from typing import Any

import pytest

from railnet.cluster_uninstall.progress import UninstallState, progress
from tests.railnet.cluster_uninstall.uninstalling_cluster import BEGIN, at, daemon_set, pod

JsonObject = dict[str, Any]


def waiting(reason: str) -> list[JsonObject]:
    return [{"ready": False, "state": {"waiting": {"reason": reason}}}]


def deleted(known: JsonObject, seconds: float) -> JsonObject:
    return {**known, "metadata": {**known["metadata"], "deletionTimestamp": at(seconds)}}


def state(known: JsonObject, seconds: float = 120) -> tuple[UninstallState, str]:
    """Return what is said of the one node, some seconds after `BEGIN`."""
    (found,) = progress("railnet", [daemon_set(nodes=1)], [known], BEGIN + timedelta(seconds=seconds)).pods
    return found.state, found.reason


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        (pod("a", ready=True), (UninstallState.DONE, "")),
        (pod("a"), (UninstallState.HAS_RAILS, "")),
        (pod("a", ready=True, uninstalls=False), (UninstallState.OLD, "")),
        (deleted(pod("a", uninstalls=False), 100), (UninstallState.OLD, "")),
        (deleted(pod("a", uninstalls=False), 10), (UninstallState.SILENT, "")),
        (pod("a", reason="NodeLost"), (UninstallState.SILENT, "")),
        (pod("a", phase="Unknown"), (UninstallState.SILENT, "")),
        (pod("a", phase="Pending", startTime=None, containerStatuses=None), (UninstallState.SILENT, "")),
        (pod("a", containerStatuses=[{"ready": True, "state": {"running": {}}}]), (UninstallState.SILENT, "")),
        (pod("a", containerStatuses=waiting("CrashLoopBackOff")), (UninstallState.FAILING, "CrashLoopBackOff")),
        (pod("a", phase="Failed", reason="Evicted", containerStatuses=[]), (UninstallState.FAILING, "Evicted")),
        (pod("a", phase="Pending", containerStatuses=None), (UninstallState.FAILING, "Pending")),
    ],
)
def test_pod_says_what_its_node_does(known: JsonObject, expected: tuple[UninstallState, str]) -> None:
    assert state(known) == expected


def test_kubelet_has_a_minute_to_take_a_new_pod() -> None:
    new = pod("a", phase="Pending", startTime=None, containerStatuses=None)

    assert [state(new, 59)[0], state(new, 61)[0]] == [UninstallState.FAILING, UninstallState.SILENT]


def test_pod_that_is_on_no_node_yet_does_not_make_a_node_silent() -> None:
    new = pod("a", phase="Pending", startTime=None, containerStatuses=None)
    del new["spec"]["nodeName"]

    assert state(new) == (UninstallState.FAILING, "Pending")


def test_line_names_nodes_and_pods_and_says_what_to_do() -> None:
    pods = [
        pod("a", ready=True),
        pod("b"),
        pod("c", containerStatuses=waiting("ErrImagePull")),
        pod("d", reason="NodeLost"),
    ]

    line = str(progress("railnet", [daemon_set(nodes=5)], pods, BEGIN))

    assert line.split(". ") == [
        "1 of 5 nodes are done",
        "Waiting for pods with rails: b (railnet-b); `kubectl -n railnet logs railnet-b` names the pods: delete them, or wait for their jobs",
        "Not answering: d (railnet-d); repair the node, delete it (`kubectl delete node d`), or go on without it (`helm uninstall --no-hooks`)",
        "Not running: c (railnet-c, ErrImagePull); `kubectl -n railnet describe pod railnet-c` says why",
        "Without a pod of Railnet's at the moment: 1",
    ]


def test_line_names_at_most_five_nodes_and_counts_the_others() -> None:
    pods = [pod(f"n{number}", uninstalls=False) for number in range(8)]

    line = str(progress("railnet", [daemon_set(nodes=8)], pods, BEGIN))

    assert "n4 (railnet-n4), and 3 more" in line
    assert "n5" not in line


def test_pods_of_others_are_no_nodes_and_several_daemon_sets_are_counted_together() -> None:
    daemon_sets = [daemon_set("gpu", 1), daemon_set("cpu", 2)]
    pods = [pod("a", owner="gpu", ready=True), pod("b", owner="cpu", ready=True), pod("b", owner="job", ready=True)]

    found = progress("railnet", daemon_sets, pods, BEGIN)

    assert str(found).startswith("2 of 3 nodes are done.")
    assert [one.pod for one in found.pods] == ["gpu-a", "cpu-b"]


@pytest.mark.parametrize(
    ("generation", "status", "complete"),
    [
        (1, {}, True),
        (2, {}, False),
        (1, {"updatedNumberScheduled": 1}, False),
        (1, {"numberReady": 1}, False),
        (1, {"updatedNumberScheduled": None}, False),
    ],
)
def test_rollout_is_complete_when_the_status_is_of_this_generation_and_counts_all_nodes(
    generation: int, status: JsonObject, complete: bool
) -> None:
    known = daemon_set(nodes=2)
    known["metadata"]["generation"] = generation
    known["status"] |= status

    assert progress("railnet", [daemon_set("other"), known], [], BEGIN).complete is complete


def test_new_daemon_set_without_a_status_is_not_complete() -> None:
    known = daemon_set()
    del known["status"]

    assert not progress("railnet", [known], [], BEGIN).complete
