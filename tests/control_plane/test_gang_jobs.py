"""What the Job controller, quotas and Railnet's gangs make of each other. What is marked `xfail` is a fault of Railnet that is known."""

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from tests.cluster.process import wait_until
from tests.control_plane.controllers import Controllers
from tests.control_plane.gang_cluster import (
    SECONDS,
    STRANGERS,
    gating,
    is_gated,
    leaf,
    leaves_of,
    nodes_of,
    required,
    runs,
)
from tests.control_plane.gang_jobs import GangJob
from tests.control_plane.nodes import Nodes
from tests.control_plane.proxy import ApiProxy
from tests.control_plane.server import ApiServer
from tests.control_plane.strangers import Strangers

STAYS_SECONDS = 5.0


@pytest.fixture(scope="module")
def leader(server: ApiServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Controllers]:
    """Have one leader for all tests."""
    with gating(server, tmp_path_factory.mktemp("webhook")), ApiProxy(server.api) as proxy:
        found = Controllers(server, tmp_path_factory.mktemp("controllers"), options=["--gangs"])
        found.start(proxy)
        try:
            found.wait()
            yield found
        finally:
            found.stop()


@pytest.fixture
def nodes(server: ApiServer) -> Iterator[Nodes]:
    found = Nodes(server.api)
    yield found
    server.api.delete(f"/api/v1/namespaces/{STRANGERS}/pods?gracePeriodSeconds=0")
    found.remove_all()


def has_failed(job: GangJob) -> bool:
    return any(one["type"] == "Failed" and one["status"] == "True" for one in job.status().get("conditions", ()))


def test_pod_that_is_made_again_comes_to_the_others(server: ApiServer, leader: Controllers, nodes: Nodes) -> None:
    nodes.create([*leaf("one", 2, 4), *leaf("two", 2, 4)])
    with GangJob(server, "member-dies", 4, required()) as job:
        wait_until(lambda: runs(job), SECONDS, "four pods to run")
        before = leaves_of(job)
        victim = job.pods()[0]["metadata"]["name"]
        server.api.delete(f"{job.pods_path}/{victim}")
        wait_until(lambda: job.made() == 5 and runs(job), SECONDS, "the pod to be made again, after ten seconds")

        assert leaves_of(job) == before
        assert not has_failed(job)


@pytest.mark.xfail(strict=True, raises=AssertionError, reason="moving a gang destroys the Job it belongs to")
def test_gang_that_is_moved_keeps_its_job(
    server: ApiServer, leader: Controllers, nodes: Nodes, measured: Callable[[str], None]
) -> None:
    """Evicted pods count against the Job's `backoffLimit`, which is 6."""
    nodes.create([*leaf("one", 4, 2), *leaf("two", 4, 2)])
    with GangJob(server, "moved", 8, required()) as job, Strangers(server, job, most=1) as strangers:
        strangers.until(lambda: has_failed(job) or job.made() > 8, "the Job controller to count the evicted pods")
        measured(f"of a Job whose gang of 8 was evicted: {job.status().get('failed', 0)} pods count as failed")

        assert not has_failed(job)


@pytest.mark.xfail(strict=True, raises=AssertionError, reason="all or none does not hold for members that never come")
def test_gang_of_which_a_quota_permits_a_part_does_not_start(
    server: ApiServer, leader: Controllers, nodes: Nodes
) -> None:
    nodes.create(leaf("one", 2, 4))
    server.namespace("scarce")
    quota = {"metadata": {"name": "quota"}, "spec": {"hard": {"pods": "3"}}}
    made = server.api.create("/api/v1/namespaces/scarce/resourcequotas", quota)
    assert made.status == 201, made.message
    with GangJob(server, "scarce", 4, required()) as job:
        wait_until(lambda: len(job.pods()) == 3, SECONDS, "three pods")
        time.sleep(STAYS_SECONDS)

        assert nodes_of(job) == {"": 3}


def test_gang_whose_pods_are_not_bound_yet_keeps_its_seats(
    server: ApiServer, leader: Controllers, nodes: Nodes, measured: Callable[[str], None]
) -> None:
    """The scheduler is away, while the Job controller makes more and more pods, and the leader opens their gates."""
    nodes.create(leaf("one", 20, 2))
    host = "kubernetes.io/hostname"
    preferred = json.dumps({"name": "test", "preferred": {"topologies": [{"key": host}]}})
    server.plane.scheduler.stop()
    try:
        with GangJob(server, "seats", 32, preferred, gang=("seats", 2)) as job:
            wait_until(lambda: [is_gated(one) for one in job.pods()] == [False] * 32, SECONDS, "32 pods without a gate")
            given = Counter(one["spec"]["nodeSelector"][host] for one in job.pods())
            measured(f"of a gang of 32, two to a node: the nodes that are named have {sorted(given.values())} pods")

            assert max(given.values()) <= 2
    finally:
        server.plane.scheduler.start()
