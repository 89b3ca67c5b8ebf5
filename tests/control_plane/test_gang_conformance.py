"""The outcomes that CNCF's AI conformance asks of gangs (kubernetes-sigs/ai-conformance, KAR-0053), each as the requirement words it."""

from collections.abc import Iterator

import pytest

from tests.cluster.process import wait_until
from tests.control_plane.controllers import Controllers
from tests.control_plane.gang_cluster import SECONDS, gating, is_gated, leader, messages, nodes_of, runs
from tests.control_plane.gang_jobs import GangJob
from tests.control_plane.nodes import Nodes, node
from tests.control_plane.server import ApiServer

_PODS = 4
_ENDS = {"pod-complete.stage.kwok.x-k8s.io/delay": "0s"}  # tests/control_plane/kwok_stages.yaml


@pytest.fixture(scope="module")
def controllers(server: ApiServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Controllers]:
    with (
        gating(server, tmp_path_factory.mktemp("webhook")),
        leader(server, tmp_path_factory.mktemp("controllers")) as found,
    ):
        yield found


def end(server: ApiServer, job: GangJob) -> None:
    """Have the containers of all pods of a job end."""
    for pod in job.pods():
        server.api.merge(f"{job.pods_path}/{pod['metadata']['name']}", {"metadata": {"annotations": _ENDS}})


@pytest.mark.usefixtures("controllers")
def test_kar_0053_positive_all_pods_run_and_the_workload_completes(server: ApiServer, nodes: Nodes) -> None:
    nodes.create([node("one", rdma_ib_vf="2"), node("two", rdma_ib_vf="2")])
    with GangJob(server, "positive", _PODS) as job:
        wait_until(lambda: runs(job), SECONDS, "all pods to run")
        assert nodes_of(job) == {"one": 2, "two": 2}
        end(server, job)
        wait_until(lambda: job.status().get("succeeded") == _PODS, SECONDS, "the job to be complete")


@pytest.mark.usefixtures("controllers")
def test_kar_0053_negative_no_pod_runs_where_there_is_room_for_fewer(server: ApiServer, nodes: Nodes) -> None:
    nodes.create([node("one", rdma_ib_vf="2"), node("two", rdma_ib_vf="1")])
    with GangJob(server, "negative", _PODS) as job:
        wait_until(
            lambda: job.made() == _PODS and "rdma/ib_vf" in messages(server, job, "GangRefused"),
            SECONDS,
            "an event that says what is missing",
        )
        assert [is_gated(pod) for pod in job.pods()] == [True] * _PODS
        assert nodes_of(job) == {"": _PODS}
        assert {pod["status"]["phase"] for pod in job.pods()} == {"Pending"}


@pytest.mark.usefixtures("controllers")
def test_kar_0053_clean_up_a_deleted_workload_gives_its_resources_back(server: ApiServer, nodes: Nodes) -> None:
    nodes.create([node("one", rdma_ib_vf="2"), node("two", rdma_ib_vf="2")])
    with GangJob(server, "first", _PODS) as job:
        wait_until(lambda: runs(job), SECONDS, "all pods to run")
    with GangJob(server, "second", _PODS) as job:
        wait_until(lambda: runs(job), SECONDS, "all pods of another job to run")
        assert nodes_of(job) == {"one": 2, "two": 2}
