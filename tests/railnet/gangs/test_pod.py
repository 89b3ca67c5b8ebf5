"""A pod reduced to what the placement of gangs reads of it."""

import copy
import pickle
import sys
from typing import Any

import pytest

from railnet.controllers.training_pod import training_pod
from railnet.gangs.placement import search
from railnet.gangs.placement.pod_shape import Unseen
from railnet.gangs.placement_annotation import Placed
from railnet.gangs.pod import GangPods
from railnet.jobs.reported_pod import ReportedPod
from railnet.objects.owner_reference import OwnerReference
from tests.control_plane.hostile_crowd import costly_pod
from tests.railnet.controllers.gangs.gang_cluster import CONSTRAINT, pod_of

JsonObject = dict[str, Any]


def a_pod(**fields: Any) -> JsonObject:
    found = copy.deepcopy(pod_of("bert", "bert-0", **fields))
    found["metadata"] |= {"uid": "uid-1", "resourceVersion": "7"}
    return found


def plain(**spec: Any) -> JsonObject:
    found = a_pod()
    found["metadata"] |= {"labels": {}, "annotations": {}}
    found["spec"] = {"containers": [{"name": "main"}], **spec}
    return found


def test_gated_pod_is_kept_with_its_gang() -> None:
    found = GangPods().reduce(ReportedPod(a_pod(least=4, priority=7, gates=[{"name": "others.io/quota"}])))

    assert found is not None
    assert found.request is not None
    assert (found.request.name, found.request.min_available) == ("bert", 4)
    assert found.gated is not None
    assert (found.gated.version, found.gated.gate, found.gated.selects) == ("7", 0, False)
    assert (found.node, found.priority, found.preempts, found.created) == ("", 7, True, 600.0)
    assert dict(found.shape.requests) == {"nvidia.com/gpu": 8, "pods": 1}


def test_bound_pod_of_no_gang_is_kept_with_what_it_holds_alone() -> None:
    found = GangPods().reduce(ReportedPod(plain(nodeName="a-0")))

    assert found is not None
    assert (found.node, found.request, found.owner, found.gated) == ("a-0", None, None, None)


@pytest.mark.parametrize(("kind", "stays"), [("DaemonSet", True), ("Node", True), ("ReplicaSet", False)])
def test_pod_of_a_daemonset_or_of_a_nodes_file_stays(kind: str, stays: bool) -> None:
    pod = plain(nodeName="a-0")
    pod["metadata"]["ownerReferences"] = [
        {"apiVersion": "v1", "kind": kind, "name": "x", "uid": "u", "controller": True}
    ]
    found = GangPods().reduce(ReportedPod(pod))

    assert found is not None
    assert (found.stays, found.owner) == (stays, None)


@pytest.mark.parametrize(
    "fields",
    [
        {"spec": {"schedulerName": "volcano"}},
        {"labels": {"kueue.x-k8s.io/queue-name": "q"}},
        {"spec": {"schedulingGroup": {"podGroupName": "x"}}},
    ],
)
def test_pod_that_another_scheduler_places_is_of_no_gang_once_it_has_no_gate(fields: dict[str, Any]) -> None:
    pod = a_pod(**fields)
    gated = GangPods().reduce(ReportedPod(pod))
    assert gated is not None
    assert gated.request is not None
    pod["spec"] |= {"schedulingGates": [], "nodeName": "a-0"}
    found = GangPods().reduce(ReportedPod(pod))
    assert found is not None
    assert (found.request, found.fault, found.node) == (None, "", "a-0")
    pod["metadata"]["annotations"]["railnet.io/placement"] = '{"domain":{},"attempt":1}'
    placed = GangPods().reduce(ReportedPod(pod))

    assert placed is not None
    assert placed.request is not None


def test_pod_that_holds_nothing_and_waits_for_no_gang_is_not_kept() -> None:
    assert GangPods().reduce(ReportedPod(plain())) is None


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_pod_that_has_ended_holds_nothing(phase: str) -> None:
    ended = plain(nodeName="a-0")
    ended["status"]["phase"] = phase

    assert GangPods().reduce(ReportedPod(ended)) is None


def test_member_that_is_complete_is_kept_and_one_that_failed_is_not() -> None:
    pod = a_pod()
    pod["spec"] |= {"nodeName": "a-0", "schedulingGates": []}
    pod["status"]["phase"] = "Succeeded"
    found = GangPods().reduce(ReportedPod(pod))
    pod["status"]["phase"] = "Failed"

    assert found is not None
    assert (found.succeeded, found.node) == (True, "")
    assert GangPods().reduce(ReportedPod(pod)) is None


@pytest.mark.parametrize(("phase", "status", "expected"), [("Succeeded", "True", True), ("Succeeded", "False", False)])
def test_pod_that_ended_with_0_when_it_was_evicted_is_seen(phase: str, status: str, *, expected: bool) -> None:
    disrupted = {"type": "DisruptionTarget", "status": status}
    pod = a_pod() | {"status": {"phase": phase, "conditions": [disrupted]}}
    reduced = GangPods().reduce(ReportedPod(pod))

    assert reduced is not None
    assert (reduced.succeeded, reduced.completed_by_eviction) == (True, expected)


def test_gang_that_cannot_be_read_is_a_fault_of_the_pod() -> None:
    pod = a_pod()
    pod["metadata"]["annotations"][CONSTRAINT] = "{"
    found = GangPods().reduce(ReportedPod(pod))

    assert found is not None
    assert found.request is None
    assert CONSTRAINT in found.fault


def test_placement_and_trouble_of_a_pod_are_read() -> None:
    pod = a_pod()
    del pod["spec"]["schedulingGates"]
    pod["metadata"]["annotations"]["railnet.io/placement"] = '{"domain":{},"attempt":2}'
    pod["status"]["conditions"] = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]
    found = GangPods().reduce(ReportedPod(pod))

    assert found is not None
    assert (found.gated, found.placed, found.unschedulable) == (None, Placed((), 2), True)


@pytest.mark.parametrize(("text", "size"), [("8", 8), ("many", None), ("9" * 30, None), ("", None)])
def test_size_that_the_author_says_is_read(text: str, size: int | None) -> None:
    pod = a_pod()
    pod["metadata"]["annotations"]["railnet.io/size"] = text
    found = GangPods().reduce(ReportedPod(pod))

    assert found is not None
    assert found.size == size or found.fault


def test_place_in_the_job_is_that_of_the_operators_labels() -> None:
    labels = {
        "jobset.sigs.k8s.io/jobset-name": "set",
        "jobset.sigs.k8s.io/replicatedjob-name": "Workers",
        "jobset.sigs.k8s.io/job-index": "2",
    }
    found = GangPods().reduce(ReportedPod(a_pod(labels={**labels, "batch.kubernetes.io/job-completion-index": "3"})))

    assert found is not None
    assert (found.role, found.rank) == ("workers", 2_000_003)


def test_pod_with_a_malformed_place_is_still_a_member() -> None:
    pod = a_pod(labels={"railnet.io/net1": "true", "railnet.io/job": "bert"})
    pod["metadata"]["annotations"]["railnet.io/container"] = "other"
    found = GangPods().reduce(ReportedPod(pod))

    assert found is not None
    assert (found.role, found.rank) == ("", 0)


def test_pods_share_what_they_have_in_common() -> None:
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "bert", "uid": "uid", "controller": True}
    pods = GangPods()
    first, second = (
        pods.reduce(
            ReportedPod({**a_pod(), "metadata": {**a_pod()["metadata"], "name": name, "ownerReferences": [owner]}})
        )
        for name in "ab"
    )

    assert first is not None
    assert second is not None
    assert first.shape is second.shape
    assert first.request is second.request
    assert first.owner is second.owner
    assert first.owner == OwnerReference("batch/v1", "Job", "bert", "uid")


def test_what_is_shared_does_not_grow_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("railnet.gangs.pod._MOST_SHARED", 10)
    pods = GangPods()
    for number in range(100):
        pods.reduce(ReportedPod(plain(nodeName=f"node-{number}")))

    assert len(pods._shared) <= 11


@pytest.mark.parametrize(
    "changes",
    [
        {"annotations": {"batch.kubernetes.io/job-completion-index": "0" + ".1" * 100_000}},
        {
            "ownerReferences": [
                {**dict.fromkeys(("apiVersion", "kind", "name", "uid"), "x" * 300_000), "controller": True}
            ]
        },
    ],
    ids=["rank", "owner"],
)
def test_of_a_pod_of_any_size_little_is_kept(changes: JsonObject) -> None:
    pod = a_pod()
    pod["metadata"]["labels"]["railnet.io/net1"] = "true"
    pod["metadata"] |= changes
    pod["spec"]["resourceClaims"] = [{"name": f"c{n}", "resourceClaimName": f"claim-{n}"} for n in range(20_000)]
    pod["status"] = {"nominatedNodeName": "x" * 240_000}
    reported = ReportedPod(pod)

    assert len(pickle.dumps((GangPods().reduce(reported), training_pod(reported)))) < 8 << 10


def costly(number: int) -> JsonObject:
    pod = costly_pod(number)
    pod["metadata"] |= {"uid": f"uid-{number}", "creationTimestamp": "2026-11-01T00:00:00Z"}
    return pod


def test_nothing_is_kept_of_the_constraint_of_a_gang_that_is_gone() -> None:
    """A tenant that makes gangs anew, each with another constraint, filled the memory beyond its share: by 89 MiB."""
    reduced = GangPods().reduce(ReportedPod(costly(7)))
    assert reduced is not None
    assert reduced.request is not None
    constraint = reduced.request.constraint
    assert constraint is not None
    search.levels(constraint, relaxed=False)
    references = sys.getrefcount(constraint)
    search._levels.cache_clear()

    assert sys.getrefcount(constraint) == references


@pytest.mark.slow
def test_tenant_whose_pods_are_all_large_and_different_keeps_its_share_alone() -> None:
    pods = GangPods()
    crowd = [pods.reduce(ReportedPod(costly(number))) for number in range(600)]
    other = pods.reduce(ReportedPod(a_pod()))

    assert {pod.fault.partition("have so many different")[0] for pod in crowd if pod is not None} == {
        "",
        "the pods of this namespace ",
    }
    assert {pod.shape.unseen for pod in crowd if pod is not None} == {(), (Unseen.LARGE,)}
    assert len(pickle.dumps(crowd)) < 24 << 20
    assert other is not None
    assert (other.request is not None, other.fault) == (True, "")
