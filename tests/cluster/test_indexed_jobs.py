"""Indexed Jobs of two pods: one of Kubernetes' own, and one that JobSet itself makes. One pod finds the other by its name on net1."""

import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from tests.cluster import golden_pods, training_pods
from tests.cluster.evicted_jobs import EvictedJob, evict_one_pod, pod_template, stays
from tests.cluster.node import ClusterNode
from tests.cluster.operated import operated
from tests.cluster.operator_jobs import SECONDS, SPREAD, Objects, OperatorJob, spread_over_nodes
from tests.cluster.operators import JOBSET
from tests.cluster.process import wait_until
from tests.cluster.train_as import TrainedAs, train_as
from tests.cluster.training_jobs import Ended

_BYTES = 4 << 20
_LITTLE = 1 << 20  # what may go over eth0: questions to the DNS, for as long as a peer is awaited
_CONTAINER = "main"
_INDEX = "batch.kubernetes.io/job-completion-index"


class Exchanged(NamedTuple):
    """A job that has succeeded.

    Attributes:
        pods: by index, at their end.
        conditions: of the job.
        left: what was left when the job had been deleted.
    """

    pods: dict[str, Ended]
    conditions: set[str]
    left: list[str]

    def said(self) -> dict[str, tuple[str, ...]]:
        """Return job, role and rank by index, as the labels say."""
        keys = ("job", "role", "rank")
        return {
            index: tuple(ended.pod["metadata"]["labels"][f"railnet.io/{key}"] for key in keys)
            for index, ended in self.pods.items()
        }


@pytest.fixture(scope="module")
def cluster(shared_node: ClusterNode, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterNode]:
    with operated(shared_node, JOBSET, tmp_path_factory.mktemp("jobset")):
        yield shared_node


@pytest.fixture(scope="module")
def of_jobset(cluster: ClusterNode) -> Exchanged:
    metadata = {"name": "ring", "namespace": "sets"}
    replicated = {"name": "workers", "replicas": 1, "template": {"spec": _indexed("ring-workers-0-0")}}
    job = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": metadata}
    return _run(cluster, {**job, "spec": {"replicatedJobs": [replicated]}}, "Completed")


@pytest.fixture(scope="module")
def plain(cluster: ClusterNode) -> Exchanged:
    metadata = {"name": "ring", "namespace": "jobs"}
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata,
        "spec": _indexed("ring-worker-0", subdomain="ring"),
    }
    return _run(cluster, job, "Complete")


@pytest.fixture(params=["of_jobset", "plain"])
def exchanged(request: pytest.FixtureRequest) -> Exchanged:
    """Each of the jobs."""
    found: Exchanged = request.getfixturevalue(request.param)
    return found


@pytest.fixture(scope="module")
def by_train(
    cluster: ClusterNode, tmp_path_factory: pytest.TempPathFactory, measured: Callable[[str], None]
) -> TrainedAs:
    """A job by `railnet train up --as jobset`: rank 1 sends to the name of rank 0, and each says what it is."""
    began = time.monotonic()
    receive = training_pods.receive().command[-1]
    send = training_pods.send('"$MASTER_ADDR"', _BYTES).command[-1]
    said = (
        'echo "rank $RANK of $WORLD_SIZE, torchrun $PET_NODE_RANK of $PET_NNODES at $PET_MASTER_ADDR:$PET_MASTER_PORT"'
    )
    script = f'if [ "$RANK" = 0 ]; then {receive}; else {send}; fi; {said}; grep -c net1: /proc/net/dev'
    folder = tmp_path_factory.mktemp("train")
    trained = train_as(cluster, folder, "jobset", image=training_pods.NOTHING.image, script=script)
    measured(f"railnet train up --as jobset, to its end and down: {time.monotonic() - began:.1f} s")
    return trained


def _indexed(receiver: str, **of_pods: Any) -> dict[str, Any]:
    """Describe the Job: pod 0 receives, and pod 1, on another node, sends to the name of pod 0 on net1.

    Args:
        receiver: the name of pod 0 on net1.
        of_pods: keys of the pods' spec.
    """
    receive, send = training_pods.receive().command[-1], training_pods.send(receiver, _BYTES).command[-1]
    container = {
        "name": _CONTAINER,
        "image": training_pods.NOTHING.image,
        "command": ["sh", "-c", f'if [ "$JOB_COMPLETION_INDEX" = 0 ]; then {receive}; else {send}; fi'],
    }
    spec = {
        "containers": [container],
        "restartPolicy": "Never",
        "topologySpreadConstraints": [spread_over_nodes()],
        "terminationGracePeriodSeconds": 5,
        "automountServiceAccountToken": False,
        **of_pods,
    }
    metadata = {"labels": SPREAD, "annotations": {"railnet.io/names": "task"}}
    return {
        "completionMode": "Indexed",
        "completions": 2,
        "parallelism": 2,
        "template": {"metadata": metadata, "spec": spec},
    }


def _run(cluster: ClusterNode, described: dict[str, Any], condition: str) -> Exchanged:
    with OperatorJob(cluster, described) as job:
        pods: Objects = {}

        def has_ended() -> bool:
            pods.update(job.pods())
            return condition in job.conditions()

        wait_until(has_ended, SECONDS, f"the job to be {condition}")
        pods.update(job.pods())
        conditions = job.conditions()
    ended = {pod["metadata"]["labels"][_INDEX]: Ended(pod, _CONTAINER) for pod in pods.values()}
    return Exchanged(ended, conditions, job.left)


def test_pods_exchange_their_data_over_net1_by_name(exchanged: Exchanged, measured: Callable[[str], None]) -> None:
    measured(f"Indexed Job of two pods: { {index: ended.carried for index, ended in exchanged.pods.items()} }")

    assert {ended.phase for ended in exchanged.pods.values()} == {"Succeeded"}
    assert len({ended.pod["spec"]["nodeName"] for ended in exchanged.pods.values()}) == 2
    for ended in exchanged.pods.values():
        assert ended.asked() == {_CONTAINER: "1"}
        assert ended.carried["net1"][0] > _BYTES
        assert max(ended.carried["eth0"]) < _LITTLE


def test_ranks_are_the_indices(of_jobset: Exchanged, plain: Exchanged) -> None:
    assert of_jobset.said() == {index: ("ring", "workers", f"0.{index}") for index in ("0", "1")}
    assert plain.said() == {index: ("ring", "worker", index) for index in ("0", "1")}


def test_pods_are_as_the_golden_pods(of_jobset: Exchanged, plain: Exchanged) -> None:
    for exchanged, name, container in (
        (of_jobset, "jobset/jobset-workers", "logs"),
        (plain, "indexed-job/cpu-label", "main"),
    ):
        made = golden_pods.made(exchanged.pods["0"].pod, _CONTAINER)
        assert made == golden_pods.golden(name, container)


def test_job_of_railnet_train_runs_as_a_jobset_whose_ranks_meet(by_train: TrainedAs) -> None:
    meet = "by-jobset-worker-0-0.by-jobset"

    assert {pod["status"]["phase"] for pod in by_train.pods.values()} == {"Succeeded"}
    assert len({pod["spec"]["nodeName"] for pod in by_train.pods.values()}) == 2
    for rank in range(2):
        ranks = f"rank {rank} of 2, torchrun {rank} of 2 at {meet}:29500"
        assert by_train.of_task(f"worker-{rank}") == f"{ranks}\n1"


def test_down_leaves_nothing_of_a_jobset(by_train: TrainedAs) -> None:
    assert "job by-jobset in namespace as is gone: " in by_train.gone
    assert by_train.left == []


def test_nothing_is_left_of_the_job(exchanged: Exchanged) -> None:
    assert exchanged.left == []


_IGNORES_EVICTIONS = {
    "rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]
}


@pytest.mark.parametrize("of_jobset", [False, True], ids=["Job", "JobSet"])
@pytest.mark.parametrize(
    ("policy", "has_failed"),
    [({}, True), ({"podFailurePolicy": _IGNORES_EVICTIONS}, False)],
    ids=["counted", "ignored"],
)
def test_job_of_which_a_pod_is_evicted_is_as_the_table_says(
    cluster: ClusterNode, policy: dict[str, Any], *, of_jobset: bool, has_failed: bool
) -> None:
    spec = {
        "parallelism": 2,
        "completions": 2,
        "backoffLimit": 0,
        "template": pod_template("main", restartPolicy="Never"),
        **policy,
    }
    metadata = {"name": "evicted", "namespace": "evicted"}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}
    if of_jobset:
        replicated = {"name": "workers", "replicas": 1, "template": {"spec": spec}}
        job = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": metadata}
        job["spec"] = {"replicatedJobs": [replicated]}

    assert evict_one_pod(cluster, job, 2, stays(has_failed=has_failed)) == EvictedJob(has_failed, is_refused=has_failed)
