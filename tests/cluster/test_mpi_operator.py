"""MPI jobs on two nodes, whose ranks exchange data by Open MPI: under the MPI operator itself, and by `railnet train` without an operator."""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.cluster import golden_pods, openmpi
from tests.cluster.evicted_jobs import EvictedJob, evict_one_pod, stays
from tests.cluster.node import ClusterNode
from tests.cluster.operated import operated
from tests.cluster.operator_jobs import SECONDS, SPREAD, Objects, OperatorJob, spread_over_nodes
from tests.cluster.operators import MPI_OPERATOR
from tests.cluster.pod_networks import net1
from tests.cluster.pods import RESOURCE
from tests.cluster.process import wait_until
from tests.cluster.train_as import TrainedAs, train_as
from tests.cluster.worker import Worker

_LITTLE = 1 << 20  # what may go over eth0: mpirun's daemons, and the ranks' output by ssh
_WORKERS = ["ring-worker-0", "ring-worker-1"]
_ROLE = "training.kubeflow.org/job-role"


class Exchanged(NamedTuple):
    """An MPIJob that has succeeded.

    Attributes:
        pods: by name, as they were last seen.
        log: of the launcher.
        carried: by worker and interface.
        conditions: of the job.
        ended: the phases of its pods when the operator had removed those that ran.
        left: what was left when the job had been deleted.
    """

    pods: Objects
    log: str
    carried: dict[str, dict[str, tuple[int, int]]]
    conditions: set[str]
    ended: dict[str, str]
    left: list[str]

    @property
    def launcher(self) -> dict[str, Any]:
        (found,) = (pod for pod in self.pods.values() if pod["metadata"]["labels"][_ROLE] == "launcher")
        return found


@pytest.fixture(scope="module")
def cluster(shared_node: ClusterNode, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterNode]:
    nodes = [node["metadata"]["name"] for node in shared_node.kubectl.get("nodes")]
    with operated(shared_node, MPI_OPERATOR, tmp_path_factory.mktemp("mpi-operator")):
        for name in nodes:
            shared_node.on(name, Worker.load, Path(os.environ["RAILNET_OPENMPI_IMAGE"]))
        yield shared_node
    for name in nodes:
        shared_node.on(name, Worker.forget, openmpi.NAME)


@pytest.fixture(scope="module")
def exchanged(cluster: ClusterNode) -> Exchanged:
    """A job of two workers, and a launcher apart."""
    return _run(cluster, _mpijob(workers=2))


@pytest.fixture(scope="module")
def with_launcher(cluster: ClusterNode) -> Exchanged:
    """A job of one worker, and of its launcher as another."""
    return _run(cluster, _mpijob(workers=1, runLauncherAsWorker=True))


@pytest.fixture(scope="module")
def without_operator(
    cluster: ClusterNode, tmp_path_factory: pytest.TempPathFactory, measured: Callable[[str], None]
) -> TrainedAs:
    """A job of `railnet train`, of which worker 0 runs mpirun."""
    began = time.monotonic()
    keys = {"kind": "mpi", "image": openmpi.NAME, "command": openmpi.MPIRUN, "memory": "256Mi"}
    trained = train_as(cluster, tmp_path_factory.mktemp("train"), None, **keys)
    measured(f"kind: mpi without an operator, to its end and down: {time.monotonic() - began:.1f} s")
    return trained


def _run(cluster: ClusterNode, described: dict[str, Any]) -> Exchanged:
    with OperatorJob(cluster, described) as job:
        pods: Objects = {}

        def has_ended() -> bool:
            pods.update(job.pods())
            return bool(job.conditions() & {"Succeeded", "Failed"})

        wait_until(has_ended, SECONDS, "the job to end")
        (launcher,) = (name for name in pods if name not in _WORKERS)
        log, conditions = job.log(launcher), job.conditions()
        wait_until(lambda: set(job.phases()) == {launcher}, SECONDS, "the workers to be cleaned up")
        ended = job.phases()
    return Exchanged(pods, log, openmpi.carried(log), conditions, ended, job.left)


def _mpijob(workers: int, **keys: Any) -> dict[str, Any]:
    """Describe a job as the operator's example `pi` is, with its pods apart."""
    of_all = {"topologySpreadConstraints": [spread_over_nodes()], "terminationGracePeriodSeconds": 1}
    worker = {"containers": [{"name": "mpi-worker", "image": openmpi.NAME, "command": openmpi.SSHD}], **of_all}
    launcher = {"containers": [{"name": "mpi-launcher", "image": openmpi.NAME, "command": openmpi.MPIRUN}], **of_all}
    return {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": {"name": "ring", "namespace": "mpi"},
        "spec": {
            "slotsPerWorker": 1,
            "launcherCreationPolicy": "WaitForWorkersReady",
            "runPolicy": {"cleanPodPolicy": "Running"},
            "mpiReplicaSpecs": {
                "Launcher": {"replicas": 1, "template": {"metadata": {"labels": SPREAD}, "spec": launcher}},
                "Worker": {"replicas": workers, "template": {"metadata": {"labels": SPREAD}, "spec": worker}},
            },
            **keys,
        },
    }


def _env(pod: dict[str, Any]) -> dict[str, str]:
    return {one["name"]: one.get("value", "") for one in pod["spec"]["containers"][0]["env"]}


def _said(pod: dict[str, Any]) -> tuple[str, ...]:
    return tuple(pod["metadata"]["labels"].get(f"railnet.io/{key}") for key in ("job", "role", "rank"))


def _limits(pod: dict[str, Any]) -> dict[str, str]:
    found: dict[str, str] = pod["spec"]["containers"][0].get("resources", {}).get("limits", {})
    return found


def test_ranks_exchange_their_data_over_net1_between_two_nodes(
    exchanged: Exchanged, measured: Callable[[str], None]
) -> None:
    measured(f"MPIJob of two ranks: {exchanged.carried}")

    assert "Succeeded" in exchanged.conditions
    assert len({exchanged.pods[name]["spec"]["nodeName"] for name in _WORKERS}) == openmpi.RANKS
    assert set(exchanged.carried) == set(_WORKERS)
    for interfaces in exchanged.carried.values():
        assert min(interfaces["net1"]) > openmpi.ROUNDS * openmpi.MESSAGE_BYTES
        assert max(interfaces["eth0"]) < _LITTLE


def test_workers_have_a_vf_each_and_the_launcher_has_variables_alone(exchanged: Exchanged) -> None:
    forwarded = {"OMPI_MCA_btl_tcp_latency_net1": "1", "OMPI_MCA_btl_tcp_bandwidth_net1": "1000000000"}

    assert {name: _limits(exchanged.pods[name]).get(RESOURCE) for name in _WORKERS} == dict.fromkeys(_WORKERS, "1")
    assert all(net1(exchanged.pods[name]) for name in _WORKERS)
    assert RESOURCE not in _limits(exchanged.launcher)
    assert _env(exchanged.launcher).items() >= forwarded.items()
    assert "NCCL_SOCKET_IFNAME" not in _env(exchanged.launcher)


def test_launcher_that_is_a_worker_has_a_vf_too_and_index_0(
    with_launcher: Exchanged, measured: Callable[[str], None]
) -> None:
    measured(f"MPIJob whose launcher is a worker: {with_launcher.carried}")
    launcher, worker = with_launcher.launcher, with_launcher.pods[_WORKERS[0]]

    assert "Succeeded" in with_launcher.conditions
    assert _limits(launcher)[RESOURCE] == _limits(worker)[RESOURCE] == "1"
    assert (_said(launcher), _said(worker)) == (("ring", "launcher", "0"), ("ring", "worker", "1"))
    assert len(with_launcher.carried) == openmpi.RANKS
    for interfaces in with_launcher.carried.values():
        assert min(interfaces["net1"]) > openmpi.ROUNDS * openmpi.MESSAGE_BYTES
        assert max(interfaces["eth0"]) < _LITTLE


def test_labels_say_job_role_and_rank(exchanged: Exchanged) -> None:
    assert {name: _said(exchanged.pods[name]) for name in _WORKERS} == {
        name: tuple(name.split("-")) for name in _WORKERS
    }


def test_pods_are_as_the_golden_pods(exchanged: Exchanged, with_launcher: Exchanged) -> None:
    worker = golden_pods.made(exchanged.pods[_WORKERS[0]], "mpi-worker")
    launcher = golden_pods.made(exchanged.launcher, "mpi-launcher")

    assert worker == golden_pods.golden("mpi-operator/worker-cpu-namespace", "mpi-worker")
    assert launcher == golden_pods.golden("mpi-operator/launcher-namespace", "tensorflow-benchmarks")
    launcher = golden_pods.made(with_launcher.launcher, "mpi-launcher")
    assert launcher == golden_pods.golden("mpi-operator/launcher-as-worker", "tensorflow-benchmarks")


def test_ranks_of_a_job_without_an_operator_exchange_their_data_over_net1(
    without_operator: TrainedAs, measured: Callable[[str], None]
) -> None:
    carried = openmpi.carried(without_operator.log)
    measured(f"MPI job of two ranks without an operator: {carried}")

    assert "job by-itself: " in without_operator.said
    assert set(carried) == {"by-itself-0", "by-itself-1"}
    for interfaces in carried.values():
        assert min(interfaces["net1"]) > openmpi.ROUNDS * openmpi.MESSAGE_BYTES
        assert max(interfaces["eth0"]) < _LITTLE


def test_workers_of_a_job_without_an_operator_end_with_mpirun(without_operator: TrainedAs) -> None:
    """Kubernetes ends the worker that runs sshd, which may be gone already, or has ended with 0 on SIGTERM; down leaves nothing."""
    by_index = {
        pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"]: pod
        for pod in without_operator.pods.values()
    }

    assert by_index["0"]["status"]["phase"] == "Succeeded"
    assert _limits(by_index["0"])[RESOURCE] == "1"
    for pod in without_operator.pods.values():
        assert pod["status"]["phase"] == "Succeeded" or "deletionTimestamp" in pod["metadata"]
    assert without_operator.gone.startswith("job by-itself in namespace as is gone: 1 services, 1 jobs, ")
    assert without_operator.left == []


def test_operator_removes_the_workers_and_nothing_is_left_of_the_job(
    exchanged: Exchanged, with_launcher: Exchanged
) -> None:
    for job in (exchanged, with_launcher):
        assert list(job.ended.values()) == ["Succeeded"]
        assert job.left == []


def test_job_fails_when_a_worker_is_evicted_as_the_table_says(cluster: ClusterNode) -> None:
    """mpirun ends with an error when it loses a worker, which the operator has made again by then."""
    described = _mpijob(workers=2)
    described["metadata"] = {"name": "evicted", "namespace": "evicted"}
    (launcher,) = described["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"]
    launcher["command"] = ["mpirun", "--allow-run-as-root", "-n", "2", "sleep", "3600"]
    described["spec"]["runPolicy"]["backoffLimit"] = 0

    assert evict_one_pod(cluster, described, 3, stays(has_failed=True)) == EvictedJob(has_failed=True, is_refused=True)
