"""The article's TFJob under KubeDL itself: on the pods' network with names on net1, and in KubeDL's own host-network mode.

One worker of each job is killed. The parameter servers, which KubeDL leaves (`cleanPodPolicy: None`), are Railnet's controllers' to delete.
"""

from collections.abc import Iterator

import pytest

from tests.cluster import article_tfjob, golden_pods, trained_tfjob
from tests.cluster.evicted_jobs import EvictedJob, evict_one_pod, pod_template, stays
from tests.cluster.node import ClusterNode
from tests.cluster.operated import operated
from tests.cluster.operators import KUBEDL
from tests.cluster.pod_networks import net1
from tests.cluster.tfjob_tests import TfJobTests
from tests.cluster.trained_tfjob import DECLARED, NAMES, OPTIONS, SERVERS, WORKERS, Trained, dialled, env, port

_HOST = {"kubedl.io/network-mode": "host"}
_RANGE = range(20000, 30000)  # of KubeDL's option --hostnetwork-port-range, as it is by default


@pytest.fixture(scope="module")
def cluster(shared_node: ClusterNode, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterNode]:
    with operated(shared_node, KUBEDL, tmp_path_factory.mktemp("kubedl")):
        yield shared_node


@pytest.fixture(scope="module")
def on_pods(cluster: ClusterNode, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """The article's job, whose tasks meet on net1."""
    folder = tmp_path_factory.mktemp("on-pods")
    job = article_tfjob.kubedls(folder, *OPTIONS, of_pods={"railnet.io/rendezvous": "net1"})
    return trained_tfjob.train(cluster, job, folder)


@pytest.fixture(scope="module")
def on_host(cluster: ClusterNode, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """The article's job in KubeDL's own host-network mode."""
    folder = tmp_path_factory.mktemp("on-host")
    job = article_tfjob.kubedls(folder, *OPTIONS, annotations=_HOST)
    for role in job["spec"]["tfReplicaSpecs"].values():
        role["template"]["metadata"]["labels"]["railnet.io/net1"] = (
            "true"  # a pod that KubeDL put on the host's network asks by it
        )
    return trained_tfjob.train(cluster, job, folder)


class TestTfJob(TfJobTests):
    """Both jobs."""


def test_pods_are_as_the_golden_pods(on_pods: Trained, on_host: Trained) -> None:
    for role, name in {"worker": WORKERS[0], "ps": SERVERS[0]}.items():
        assert golden_pods.made(on_pods.after[name], "tensorflow") == golden_pods.golden(
            f"kubedl/tfjob-{role}", "tensorflow"
        )
    made = golden_pods.made(on_host.after[WORKERS[0]], "tensorflow")
    assert made == golden_pods.golden("kubedl/tfjob-host-network", "tensorflow")


def test_kubedls_own_host_network_mode_keeps_its_ports_and_services(on_host: Trained) -> None:
    for name, pod in on_host.after.items():
        assert pod["spec"]["hostNetwork"]
        assert not net1(pod)
        assert "railnet.io/host-port" not in pod["metadata"].get("annotations", {})
        assert "RAILNET_HOST_PORT" not in env(pod)
        assert port(on_host.after, name) in _RANGE
        hosts = {other: f"{other}.kubedl.svc:{DECLARED}" for other in NAMES}
        assert dialled(pod) == {**hosts, name: f"{name}.kubedl.svc:{port(on_host.after, name)}"}
        assert on_host.services[name]["spec"]["clusterIP"] != "None"
        assert on_host.services[name]["spec"]["ports"][0]["targetPort"] == port(on_host.after, name)


@pytest.mark.parametrize(("policy", "has_failed"), [("Never", True), ("OnFailure", True), ("ExitCode", False)])
def test_job_of_which_a_pod_is_evicted_fails_as_the_table_says(
    cluster: ClusterNode, policy: str, *, has_failed: bool
) -> None:
    """With ExitCode it goes on because the program ended with 143; the table refuses it, since a program may end with another code."""
    role = {"replicas": 2, "restartPolicy": policy, "template": pod_template("tensorflow")}
    job = {
        "apiVersion": "training.kubedl.io/v1alpha1",
        "kind": "TFJob",
        "metadata": {"name": "evicted", "namespace": "evicted"},
        "spec": {"tfReplicaSpecs": {"Worker": role}},
    }

    assert evict_one_pod(cluster, job, 2, stays(has_failed=has_failed)) == EvictedJob(has_failed, is_refused=True)
