"""Host-network mode as its users have it: overlays/host-network-1.20 on the node, and the article's TFJob through its webhooks.

A KubeDL job without the annotation and one of KubeDL's own host-network mode stay as they are. Kubeflow's operator knows no such mode:
there Railnet does everything, and one worker is killed.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import pytest

from tests.cluster import trained_tfjob
from tests.cluster.admission_on_node import Admission
from tests.cluster.node import JOURNAL, PFS, VFS, ClusterNode
from tests.cluster.pods import RESOURCE
from tests.cluster.process import wait_until
from tests.cluster.tfjob import kubeflows
from tests.cluster.trained_tfjob import KILLED, SERVERS, STEPS, WORKERS, Trained, containers, port
from tests.stand_ins.tfjob_operator import HOST_NETWORK

_RAILS = {"railnet.io/net1": "true"}  # a namespace whose training pods get VFs without asking for GPUs
_HOST = {HOST_NETWORK: "host"}
_RANGE = range(20000, 30000)
_DECLARED = 2222
_NAMES = [*SERVERS, *WORKERS]
_NET1 = "k8s.v1.cni.cncf.io/network-status"
_SECONDS = 150.0


class KubeDlJobs(NamedTuple):
    """Two jobs of KubeDL's."""

    plain: Trained
    on_host: Trained


@pytest.fixture(scope="module")
def cluster(shared_node: ClusterNode) -> Iterator[ClusterNode]:
    """A node with a running daemon; nothing may be left over after all tests."""
    shared_node.railnet.start()
    shared_node.wait_for_vfs(VFS * len(PFS))
    yield shared_node
    assert shared_node.left_over() == []


@pytest.fixture(scope="module")
def admission(cluster: ClusterNode, measured: Callable[[str], None]) -> Iterator[Admission]:
    began = time.monotonic()
    with Admission(cluster, "overlays/host-network-1.20") as installed:
        measured(f"host-network mode installed: {time.monotonic() - began:.1f} s")
        yield installed
        began = time.monotonic()
    measured(f"… and taken away: {time.monotonic() - began:.1f} s")


@pytest.fixture(scope="module")
def kubedl(admission: Admission, cluster: ClusterNode, tmp_path_factory: pytest.TempPathFactory) -> KubeDlJobs:
    """The article's job unchanged, in a namespace that gives VFs, and beside it the same with KubeDL's own host-network mode."""
    folders = [tmp_path_factory.mktemp(name) for name in ("plain", "on-host")]
    with ThreadPoolExecutor(2) as threads:
        plain = threads.submit(trained_tfjob.train, cluster, folders[0], labels=_RAILS, kill=False)
        on_host = threads.submit(
            trained_tfjob.train, cluster, folders[1], described=elsewhere, annotations=_HOST, kill=False
        )
        return KubeDlJobs(plain.result(), on_host.result())


@pytest.fixture(scope="module")
def kubeflow(kubedl: KubeDlJobs, cluster: ClusterNode, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """The article's job for Kubeflow's operator, on the host's network and with VFs; one worker was killed."""
    wait_until(lambda: not list(JOURNAL.glob("*.json")), _SECONDS, "the other job's VFs to be free")
    return trained_tfjob.train(
        cluster,
        tmp_path_factory.mktemp("kubeflow"),
        described=kubeflows,
        annotations=_HOST,
        labels=_RAILS,
        kill=True,
    )


def elsewhere(job: Mapping[str, Any]) -> dict[str, Any]:
    """Return a job in a namespace of its own."""
    return {**job, "metadata": {**job["metadata"], "namespace": "kubedl-on-host"}}


def env(pod: Mapping[str, Any]) -> dict[str, str]:
    return {one["name"]: one.get("value", "") for one in pod["spec"]["containers"][0]["env"]}


def dialled(pod: Mapping[str, Any]) -> dict[str, int]:
    """Return by task the port that TF_CONFIG gives it."""
    cluster = json.loads(env(pod)["TF_CONFIG"])["cluster"]
    return {
        f"mnist-{role}-{index}": int(one.rpartition(":")[2])
        for role in cluster
        for index, one in enumerate(cluster[role])
    }


def asked(pod: Mapping[str, Any]) -> str | None:
    found: str | None = pod["spec"]["containers"][0]["resources"].get("limits", {}).get(RESOURCE)
    return found


def is_complete(job: Trained) -> bool:
    return all(f"complete at step {STEPS}" in job.logs[name] for name in WORKERS)


def test_job_without_the_annotation_keeps_its_network_ports_and_services(kubedl: KubeDlJobs) -> None:
    job = kubedl.plain

    assert is_complete(job)
    assert {name: asked(pod) for name, pod in job.after.items()} == dict.fromkeys(_NAMES, "1")
    for name, pod in job.after.items():
        assert "net1" in pod["metadata"]["annotations"][_NET1]
        assert not pod["spec"].get("hostNetwork")
        assert port(job.after, name) == _DECLARED
        assert set(dialled(pod).values()) == {_DECLARED}
        assert job.services[name]["spec"]["clusterIP"] == "None"
        assert job.services[name]["spec"]["ports"][0]["targetPort"] == _DECLARED


def test_kubedls_own_host_network_mode_keeps_its_ports_and_services(kubedl: KubeDlJobs) -> None:
    job = kubedl.on_host

    assert is_complete(job)
    assert list(job.after) == _NAMES
    for name, pod in job.after.items():
        assert pod["spec"]["hostNetwork"]
        assert "railnet.io/host-port" not in pod["metadata"].get("annotations", {})
        assert "RAILNET_HOST_PORT" not in env(pod)
        assert dialled(pod) == {**dict.fromkeys(_NAMES, _DECLARED), name: port(job.after, name)}
        assert job.services[name]["spec"]["clusterIP"] != "None"
        assert job.services[name]["spec"]["ports"][0]["targetPort"] == port(job.after, name)


def test_annotation_puts_a_job_on_the_hosts_network_whose_operator_knows_no_such_mode(
    kubeflow: Trained, measured: Callable[[str], None]
) -> None:
    ports = {name: port(kubeflow.after, name) for name in kubeflow.after}
    measured(f"host ports {ports}; {len(kubeflow.refusals)} refusals {kubeflow.refusals[:1]}")

    assert is_complete(kubeflow)
    assert set(ports) == set(_NAMES)
    assert len({*ports.values(), port(kubeflow.before, KILLED)} & set(_RANGE)) == len(_NAMES) + 1
    for name, pod in kubeflow.after.items():
        spec = pod["spec"]
        assert (spec["hostNetwork"], spec["dnsPolicy"]) == (True, "ClusterFirstWithHostNet")
        assert spec["containers"][0]["ports"][0]["hostPort"] == ports[name]
        assert (
            pod["metadata"]["annotations"]["railnet.io/host-port"] == env(pod)["RAILNET_HOST_PORT"] == str(ports[name])
        )
        assert dialled(pod) == {**dict.fromkeys(_NAMES, _DECLARED), name: ports[name]}


def test_services_of_such_a_job_forward_a_constant_port_to_the_pods_named_port(kubeflow: Trained) -> None:
    for name in _NAMES:
        spec = kubeflow.services[name]["spec"]
        (one,) = spec["ports"]
        assert spec["clusterIP"] != "None"
        assert (one["port"], one["targetPort"]) == (_DECLARED, "tfjob-port")


def test_pods_of_such_a_job_have_vfs_and_no_net1(kubeflow: Trained) -> None:
    assert {name: asked(pod) for name, pod in kubeflow.after.items()} == dict.fromkeys(_NAMES, "1")
    assert not any(_NET1 in pod["metadata"]["annotations"] for pod in kubeflow.after.values())


def test_killed_worker_comes_back_on_another_port_and_its_peers_go_on(kubeflow: Trained) -> None:
    peers = [name for name in _NAMES if name != KILLED]
    address = kubeflow.services[KILLED]["spec"]["clusterIP"]

    assert kubeflow.made_again() == {KILLED}
    assert port(kubeflow.before, KILLED) != port(kubeflow.after, KILLED)
    assert "started at step 0" not in kubeflow.logs[KILLED]
    assert containers(kubeflow.before, *peers) == containers(kubeflow.after, *peers)
    assert {restarts for _, restarts in containers(kubeflow.after, *peers).values()} == {0}
    assert len(kubeflow.reached) > 1
    assert set(kubeflow.reached) == {f"{address}:{_DECLARED}"}
