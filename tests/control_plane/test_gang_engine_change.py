"""A cluster whose upgrade brings PodGroups, and takes them away again, while gangs run: on a whole control plane that is restarted."""

from contextlib import ExitStack

import pytest

from tests.cluster.process import wait_until
from tests.control_plane.gang_cluster import (
    STRANGERS,
    events,
    is_gated,
    leader,
    leaf,
    nodes_of,
    occupied,
    probe,
    required,
    runs,
)
from tests.control_plane.gang_engine_cluster import SECONDS, names_group, webhook
from tests.control_plane.gang_jobs import GangJob
from tests.control_plane.nodes import Nodes
from tests.control_plane.server import ApiServer


def test_change_of_the_engine_touches_no_running_gang(
    server: ApiServer, nodes: Nodes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    nodes.create([*leaf("first", 1, 4), *leaf("second", 1, 4), *leaf("third", 1, 4)])
    by_gates, by_group, again = (GangJob(server, f"engine-{name}", 4, required()) for name in ("old", "new", "again"))
    folders = [tmp_path_factory.mktemp(name) for name in ("webhook", "controllers")]
    with webhook(server, folders[0]), leader(server, folders[1]), ExitStack() as jobs:
        wait_until(lambda: is_gated(probe(server.api).object), SECONDS, "pods of gangs to be gated")
        ran = started(jobs, by_gates)
        assert not any(map(names_group, by_gates.pods()))
        with server.serving_pod_groups():
            wait_until(lambda: names_group(probe(server.api).object), SECONDS, "pods of gangs to name a PodGroup")
            ran |= started(jobs, by_group)
            assert all(map(names_group, by_group.pods()))
        wait_until(lambda: is_gated(probe(server.api).object), SECONDS, "pods of gangs to be gated again")
        started(jobs, again)
        assert not any(map(names_group, again.pods()))
        assert ran == nodes_by_uid(by_gates) | nodes_by_uid(by_group)


def test_scheduler_that_loses_pod_groups_starts_pods_that_wait_one_by_one(
    server: ApiServer, nodes: Nodes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """So the page says: create the jobs of waiting gangs again before. No pod is lost."""
    nodes.create(leaf("left", 1, 4))
    folders = [tmp_path_factory.mktemp(name) for name in ("webhook", "controllers")]
    job = GangJob(server, "engine-left", 4, required())
    with webhook(server, folders[0]), leader(server, folders[1]), ExitStack() as jobs:
        with server.serving_pod_groups(), ExitStack() as stranger:
            wait_until(lambda: names_group(probe(server.api).object), SECONDS, "pods of gangs to name a PodGroup")
            stranger.enter_context(occupied(server, "left-0", "1"))
            jobs.enter_context(job)
            wait_until(lambda: events(server, job)["GangWaiting"] > 0, SECONDS, "the event of the gang that waits")
            before = {pod["metadata"]["uid"] for pod in job.pods()}
            jobs.enter_context(stranger.pop_all())
            assert nodes_of(job) == {"": 4}
        wait_until(lambda: nodes_of(job) == {"left-0": 3, "": 1}, SECONDS, "three pods to have nodes")
        server.api.delete(f"/api/v1/namespaces/{STRANGERS}/pods/on-left-0?gracePeriodSeconds=0")
        wait_until(lambda: runs(job), SECONDS, "the fourth pod to run")
        assert {pod["metadata"]["uid"] for pod in job.pods()} == before


def started(jobs: ExitStack, job: GangJob) -> dict[str, str]:
    """Create a job, and return where its pods run."""
    jobs.enter_context(job)
    wait_until(lambda: runs(job), SECONDS, f"the pods of {job.name} to run")
    return nodes_by_uid(job)


def nodes_by_uid(job: GangJob) -> dict[str, str]:
    return {pod["metadata"]["uid"]: pod["spec"]["nodeName"] for pod in job.pods()}
