"""Kubeflow's training operator itself: the article's TFJob on both networks, and a PyTorchJob of four ranks on two nodes.

That operator knows no host-network mode: there Railnet does everything. One worker of each TFJob is killed.
"""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.cluster import article_tfjob, golden_pods, pytorch, trained_tfjob
from tests.cluster.evicted_jobs import EvictedJob, evict_one_pod, pod_template, stays
from tests.cluster.node import ClusterNode
from tests.cluster.operated import operated
from tests.cluster.operator_jobs import SECONDS, SPREAD, Objects, OperatorJob, spread_over_nodes
from tests.cluster.operators import TRAINING_OPERATOR
from tests.cluster.pod_networks import net1
from tests.cluster.pods import RESOURCE
from tests.cluster.process import wait_until
from tests.cluster.tfjob_tests import TfJobTests
from tests.cluster.train_as import NAMESPACE, TrainedAs, carried_by, train_as
from tests.cluster.trained_tfjob import DECLARED, KILLED, NAMES, OPTIONS, SERVERS, WORKERS, Trained, dialled, env, port
from tests.cluster.training_jobs import Ended
from tests.cluster.worker import Worker

_RANGE = range(20000, 30000)
_LITTLE = 1 << 20  # what may go over eth0: questions to the DNS, for as long as a peer is awaited
_NAMESPACE = "torch"
_PORT = 30123
_RANKS = ["ranks-master-0", *(f"ranks-worker-{index}" for index in range(3))]


class Reduced(NamedTuple):
    """A PyTorchJob that has succeeded.

    Attributes:
        pods: by name, at their end.
        conditions: of the job.
        left: what was left when the job had been deleted.
    """

    pods: dict[str, Ended]
    conditions: set[str]
    left: list[str]


@pytest.fixture(scope="module")
def cluster(shared_node: ClusterNode, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterNode]:
    with operated(shared_node, TRAINING_OPERATOR, tmp_path_factory.mktemp("training-operator")):
        yield shared_node


@pytest.fixture(scope="module")
def on_pods(cluster: ClusterNode, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """The article's job, whose tasks meet on net1."""
    folder = tmp_path_factory.mktemp("on-pods")
    job = article_tfjob.kubeflows(folder, *OPTIONS, of_pods={"railnet.io/rendezvous": "net1"})
    return trained_tfjob.train(cluster, job, folder)


@pytest.fixture(scope="module")
def on_host(cluster: ClusterNode, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """The article's job in Railnet's host-network mode."""
    folder = tmp_path_factory.mktemp("on-host")
    job = article_tfjob.kubeflows(folder, *OPTIONS, of_pods={"kubedl.io/network-mode": "host"})
    return trained_tfjob.train(cluster, job, folder)


@pytest.fixture(scope="module")
def with_torch(cluster: ClusterNode) -> Iterator[ClusterNode]:
    """The cluster, whose nodes have the image with PyTorch."""
    archive = Path(os.environ["RAILNET_TORCH_IMAGE"])
    nodes = [node["metadata"]["name"] for node in cluster.kubectl.get("nodes")]
    for name in nodes:
        cluster.on(name, Worker.load, archive)
    yield cluster
    for name in nodes:
        cluster.on(name, Worker.forget, pytorch.NAME)


@pytest.fixture(scope="module")
def reduced(with_torch: ClusterNode) -> Reduced:
    """An all-reduce of four ranks, two on each node, which meet by the master's name on net1."""
    cluster = with_torch
    with OperatorJob(cluster, _pytorchjob()) as running:
        running.wait_for_condition("Succeeded")
        pods = running.wait_for_phase("Succeeded", len(_RANKS))
        wait_until(lambda: "ranks-net1" not in running.objects("services"), SECONDS, "the names on net1 to end")
        conditions = running.conditions()
    return Reduced({name: Ended(pod, "pytorch") for name, pod in pods.items()}, conditions, running.left)


@pytest.fixture(scope="module")
def by_train(
    with_torch: ClusterNode, tmp_path_factory: pytest.TempPathFactory, measured: Callable[[str], None]
) -> TrainedAs:
    """A job of two torchrun workers by `railnet train up --as pytorchjob`, which ends after twenty steps."""
    began = time.monotonic()
    trained = train_as(
        with_torch,
        tmp_path_factory.mktemp("train"),
        "pytorchjob",
        image=pytorch.NAME,
        command=pytorch.checkpointed("/tmp", "/tmp/hold"),
        memory="1Gi",
        port=_PORT,
        env=pytorch.DEBIANS_TORCHRUN,
    )
    measured(f"railnet train up --as pytorchjob, to its end and down: {time.monotonic() - began:.1f} s")
    return trained


def _pytorchjob() -> dict[str, Any]:
    url = f"tcp://{_RANKS[0]}.ranks-net1:23456"
    container = {
        "name": "pytorch",
        "image": pytorch.NAME,
        "command": list(pytorch.WORK.command),
        "env": [{"name": pytorch.RENDEZVOUS, "value": url}],
    }
    spec = {
        "containers": [container],
        "topologySpreadConstraints": [spread_over_nodes()],
        "terminationGracePeriodSeconds": 5,
        "automountServiceAccountToken": False,
    }
    role = {"restartPolicy": "OnFailure", "template": {"metadata": {"labels": SPREAD}, "spec": spec}}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "ranks", "namespace": _NAMESPACE},
        "spec": {"pytorchReplicaSpecs": {"Master": {"replicas": 1, **role}, "Worker": {"replicas": 3, **role}}},
    }


def _limits(pods: Objects) -> dict[str, str]:
    return {name: pod["spec"]["containers"][0]["resources"]["limits"][RESOURCE] for name, pod in pods.items()}


def _said(pod: dict[str, Any]) -> tuple[str, ...]:
    return tuple(pod["metadata"]["labels"][f"railnet.io/{key}"] for key in ("job", "role", "rank"))


class TestTfJob(TfJobTests):
    """Both TFJobs."""


def test_pods_are_as_the_golden_pods(on_pods: Trained, reduced: Reduced) -> None:
    folder = "kubeflow-training-operator"
    for role, name in {"worker": WORKERS[0], "ps": SERVERS[0]}.items():
        made = golden_pods.made(on_pods.after[name], "tensorflow")
        assert made == golden_pods.golden(f"{folder}/tfjob-{role}", "tensorflow")
    for role, name in {"master": _RANKS[0], "worker": _RANKS[1]}.items():
        made = golden_pods.made(reduced.pods[name].pod, "pytorch")
        golden = golden_pods.golden(f"{folder}/pytorchjob-{role}", "pytorch")
        assert made._replace(env=made.env - {pytorch.RENDEZVOUS}) == golden


def test_annotation_puts_a_job_on_the_hosts_network_whose_operator_knows_no_such_mode(
    on_host: Trained, measured: Callable[[str], None]
) -> None:
    ports = {name: port(on_host.after, name) for name in on_host.after}
    measured(f"host ports {ports}")

    assert set(ports) == set(NAMES)
    assert len({*ports.values(), port(on_host.before, KILLED)} & set(_RANGE)) == len(NAMES) + 1
    for name, pod in on_host.after.items():
        spec, annotations = pod["spec"], pod["metadata"]["annotations"]
        assert (spec["hostNetwork"], spec["dnsPolicy"]) == (True, "ClusterFirstWithHostNet")
        assert spec["containers"][0]["ports"][0]["hostPort"] == ports[name]
        assert annotations["railnet.io/host-port"] == env(pod)["RAILNET_HOST_PORT"] == str(ports[name])
        hosts = {other: f"{other}.kubedl.svc:{DECLARED}" for other in NAMES}
        assert dialled(pod) == {**hosts, name: f"{name}.kubedl.svc:{ports[name]}"}
        assert not net1(pod)


def test_services_of_such_a_job_forward_a_constant_port_to_the_pods_named_port(on_host: Trained) -> None:
    for name in NAMES:
        spec = on_host.services[name]["spec"]
        (one,) = spec["ports"]
        assert spec["clusterIP"] != "None"
        assert (one["port"], one["targetPort"]) == (DECLARED, "tfjob-port")


def test_job_of_railnet_train_runs_as_a_pytorchjob_over_net1(
    by_train: TrainedAs, measured: Callable[[str], None]
) -> None:
    carried = {task: carried_by(by_train.of_task(task)) for task in ("master-0", "worker-0")}
    measured(f"all-reduce of two torchruns of a PyTorchJob: {carried}")

    assert "job by-pytorchjob: running after" in by_train.said
    assert {pod["status"]["phase"] for pod in by_train.pods.values()} == {"Succeeded"}
    assert len({pod["spec"]["nodeName"] for pod in by_train.pods.values()}) == 2
    assert _limits(by_train.pods) == dict.fromkeys(("by-pytorchjob-master-0", "by-pytorchjob-worker-0"), "1")
    for rank, task in enumerate(carried):
        assert f"started at step 0 as rank {rank} of 2" in by_train.of_task(task)
        assert carried[task]["net1"] > 20 * 4 * pytorch.SIDE
        assert carried[task]["eth0"] < _LITTLE


def test_port_of_the_file_is_the_masters(by_train: TrainedAs) -> None:
    for pod in by_train.pods.values():
        variables = {one["name"]: one.get("value") for one in pod["spec"]["containers"][0]["env"]}
        assert (variables["MASTER_ADDR"], variables["MASTER_PORT"]) == ("by-pytorchjob-master-0", str(_PORT))


def test_down_leaves_nothing_of_a_pytorchjob(by_train: TrainedAs) -> None:
    assert by_train.gone.splitlines()[0] == f"job by-pytorchjob in namespace {NAMESPACE} is gone: 2 pods"
    assert by_train.left == []


def test_nothing_is_left_of_the_ranks(reduced: Reduced) -> None:
    assert reduced.left == []


def test_ranks_are_on_two_nodes_with_a_vf_each(reduced: Reduced) -> None:
    nodes = [ended.pod["spec"]["nodeName"] for ended in reduced.pods.values()]

    assert set(reduced.pods) == set(_RANKS)
    assert sorted(nodes.count(name) for name in set(nodes)) == [2, 2]
    assert _limits({name: ended.pod for name, ended in reduced.pods.items()}) == dict.fromkeys(_RANKS, "1")
    assert {name: _said(ended.pod) for name, ended in reduced.pods.items()} == {
        name: tuple(name.split("-")) for name in _RANKS
    }


def test_gloo_meets_by_a_name_on_net1_and_exchanges_over_net1_alone(
    reduced: Reduced, measured: Callable[[str], None]
) -> None:
    measured(f"PyTorchJob of four ranks: { {name: ended.carried for name, ended in reduced.pods.items()} }")

    assert "Succeeded" in reduced.conditions
    for ended in reduced.pods.values():
        assert ended.env()["GLOO_SOCKET_IFNAME"] == "net1"
        assert min(ended.carried["net1"]) > pytorch.ROUNDS * pytorch.TENSOR_BYTES
        assert max(ended.carried["eth0"]) < _LITTLE


@pytest.mark.parametrize(
    ("kind", "policy", "has_failed"),
    [
        ("TFJob", "Never", True),
        ("TFJob", "OnFailure", True),
        ("PyTorchJob", "OnFailure", False),
        ("PyTorchJob", "Never", True),
    ],
)
def test_job_of_which_a_pod_is_evicted_is_as_the_table_says(
    cluster: ClusterNode, kind: str, policy: str, *, has_failed: bool
) -> None:
    framework = kind.removesuffix("Job").lower()
    container = "tensorflow" if framework == "tf" else framework
    role = {"replicas": 1, "template": pod_template(container), "restartPolicy": policy}
    first = {"Chief": role} if framework == "tf" else {"Master": role}
    job = {
        "apiVersion": "kubeflow.org/v1",
        "kind": kind,
        "metadata": {"name": "evicted", "namespace": "evicted"},
        "spec": {f"{framework}ReplicaSpecs": {**first, "Worker": role}},
    }

    assert evict_one_pod(cluster, job, 2, stays(has_failed=has_failed)) == EvictedJob(has_failed, is_refused=has_failed)
