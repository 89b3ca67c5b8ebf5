from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from railnet.jobs.cluster_usage import NodeRoom, PodUse, Share, node_room, pod_use, usage

RAILS = frozenset({"rdma/ib_vf"})
ALLOCATABLE = {"cpu": "8", "memory": "64Gi", "nvidia.com/gpu": "4", "rdma/ib_vf": "8", "pods": "110", "odd": "?"}


def node(ready: str = "True", **spec: Any) -> dict[str, Any]:
    conditions = [{"type": "Ready", "status": ready}]
    return {"metadata": {"name": "a"}, "spec": spec, "status": {"allocatable": ALLOCATABLE, "conditions": conditions}}


def pod(**changes: Any) -> dict[str, Any]:
    resources = {"cpu": "500m", "memory": "4Gi", "nvidia.com/gpu": "1", "rdma/ib_vf": "1"}
    return {
        "metadata": {
            "name": "mnist-worker-0-x",
            "namespace": "ml",
            "labels": {"name": "mnist", "job": "worker", "task": "0"},
        },
        "spec": {"nodeName": "a", "containers": [{"name": "mnist-worker-0", "resources": {"requests": resources}}]},
        "status": {"phase": "Running"},
        **changes,
    }


def test_node_has_room_only_if_it_is_ready_and_not_cordoned() -> None:
    assert node_room(node(), RAILS) == NodeRoom("a", usable=True, room=Share(8000, 64 << 30, 4, 8))
    assert not node_room(node("Unknown"), RAILS).usable
    assert not node_room(node(unschedulable=True), RAILS).usable


def test_pod_of_a_job_is_recognised_with_what_it_holds() -> None:
    found = pod_use(pod(), RAILS)

    assert found is not None
    assert (found.namespace, found.job, found.operator) == ("ml", "mnist", "TensorFlow on Kubernetes, plain templates")
    assert (found.held, found.runs) == (Share(500, 4 << 30, 1, 1), True)


def test_another_resource_may_be_the_rails() -> None:
    found = pod_use(pod(), frozenset({"example.com/vf"}))

    assert found is not None
    assert found.held.rails == 0


def test_ended_pod_holds_nothing() -> None:
    assert pod_use(pod(status={"phase": "Succeeded"}), RAILS) is None
    assert pod_use(pod(status={"phase": "Failed"}), RAILS) is None


def test_waiting_pod_says_what_it_waits_for() -> None:
    conditions = [
        {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": "0/3 nodes are available: 3 Insufficient rdma/ib_vf. preemption: 0/3 nodes are available: 3 No victims.",
        }
    ]
    found = pod_use(
        pod(spec={"containers": [{"name": "x"}]}, status={"phase": "Pending", "conditions": conditions}), RAILS
    )

    assert found is not None
    assert (found.runs, found.why) == (False, "Unschedulable: 0/3 nodes are available: 3 Insufficient rdma/ib_vf.")


def test_pod_that_cannot_be_read_is_counted_without_a_job() -> None:
    broken = pod()
    broken["metadata"]["annotations"] = {"railnet.io/size": "many"}
    found = pod_use(broken, RAILS)

    assert found is not None
    assert (found.job, found.held.gpus) == ("", 1)


def uses(*, rails: int, times: int) -> list[PodUse]:
    resources = {"rdma/ib_vf": str(rails)}
    one = pod_use(
        pod(spec={"nodeName": "a", "containers": [{"name": "c", "resources": {"requests": resources}}]}), RAILS
    )
    assert one is not None
    return [one] * times


@pytest.mark.parametrize(
    ("rails", "pods", "free", "unknown"), [(8, 3, 5, 0), (8, 0, 8, 0), (2, 3, 0, 0), (0, 0, 0, 0), (0, 3, 0, 1)]
)
def test_free_rails_are_never_negative_and_are_unknown_on_a_node_that_says_none(
    rails: int, pods: int, free: int, unknown: int
) -> None:
    nodes = [NodeRoom("a", usable=True, room=Share(rails=rails)), NodeRoom("b", usable=True, room=Share(rails=4))]

    found = usage(nodes, uses(rails=1, times=pods))

    assert (found.free.rails, found.nodes_of_unknown_rails) == (free + 4, unknown)
    assert found.held.rails == pods


def test_rails_of_a_node_that_takes_no_pods_are_not_unknown() -> None:
    assert usage([NodeRoom("a", usable=False, room=Share())], uses(rails=1, times=1)).nodes_of_unknown_rails == 0


_SHARES = st.builds(Share, *[st.integers(0, 9)] * 4)
_NAMES = st.sampled_from("abc")
_NODES = st.lists(st.builds(NodeRoom, _NAMES, st.booleans(), _SHARES), unique_by=lambda one: one.name, max_size=3)
_PODS = st.lists(
    st.builds(
        PodUse,
        namespace=_NAMES,
        name=st.text(max_size=3),
        job=st.sampled_from(["", "x", "y"]),
        operator=st.just("one"),
        node=st.sampled_from(["", "a", "b", "c", "gone"]),
        held=_SHARES,
        runs=st.booleans(),
        why=st.sampled_from(["", "why", "how"]),
    ),
    max_size=12,
)


def total(shares: list[Share]) -> Share:
    return Share(*(sum(column) for column in zip(*shares, strict=True))) if shares else Share()


@pytest.mark.slow
@given(_NODES, _PODS)
def test_every_pod_is_counted_once_and_free_is_what_no_pod_requests(nodes: list[NodeRoom], pods: list[PodUse]) -> None:
    found = usage(nodes, pods)
    usable = {one.name for one in nodes if one.usable}

    assert found.room == total([one.room for one in nodes if one.usable])
    assert found.held == total([one.held for one in pods if one.node in usable])
    assert total([found.free, found.held])[:-1] == found.room[:-1]
    assert 0 <= found.free.rails <= found.room.rails
    assert found.free.rails >= found.room.rails - found.held.rails
    assert total([one.held for one in found.jobs]) == total([one.held for one in pods if one.node])
    assert total([one.wanted for one in found.jobs]) == total([one.held for one in pods if not one.node])
    assert sum(one.running + one.waiting for one in found.jobs) == len(pods)
    assert sum(one.running for one in found.jobs) == sum(one.runs for one in pods)
    assert sum(count for one in found.jobs for _, count in one.reasons) == sum(
        bool(one.why and not one.runs) for one in pods
    )
    assert sorted((job.namespace, job.name) for job in found.jobs) == sorted({(one.namespace, one.job) for one in pods})


@pytest.mark.slow
@given(_NODES, _PODS, st.randoms())
def test_order_of_pods_does_not_matter(nodes: list[NodeRoom], pods: list[PodUse], random: Any) -> None:
    mixed = random.sample(pods, len(pods))
    mine, other = usage(nodes, pods), usage(nodes[::-1], mixed)

    assert (mine.held, mine.room, mine.free) == (other.held, other.room, other.free)
    assert [(one.namespace, one.name, one.held, one.wanted, dict(one.reasons)) for one in mine.jobs] == [
        (one.namespace, one.name, one.held, one.wanted, dict(one.reasons)) for one in other.jobs
    ]


@pytest.mark.slow
@given(_PODS)
def test_jobs_of_namespaces_are_all_jobs(pods: list[PodUse]) -> None:
    found = usage([], pods)

    assert [job for jobs in found.namespaces.values() for job in jobs] == list(found.jobs)
    assert list(found.namespaces) == sorted({one.namespace for one in pods})
