"""Pods of a PodGroup beside pods that run: with the configuration of kube-scheduler from the page about gangs, they are packed."""

import pytest

from tests.cluster.process import wait_until
from tests.control_plane.gang_cluster import SECONDS, leader, leaf, leaves_of, nodes_of, occupied, required, runs, seats
from tests.control_plane.gang_engine_cluster import grouping, packing
from tests.control_plane.gang_jobs import GangJob
from tests.control_plane.nodes import Nodes
from tests.control_plane.server import ApiServer

_EMPTY_LEAVES = 8


def test_scheduler_that_packs_takes_the_planners_nodes_and_not_those_of_empty_leaves(
    server: ApiServer, nodes: Nodes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    empty = [node for number in range(_EMPTY_LEAVES) for node in leaf(f"empty{number}", 2, 4)]
    nodes.create([*leaf("used", 2, 4), *empty])
    webhook, controllers = (tmp_path_factory.mktemp(name) for name in ("webhook", "controllers"))
    with (
        server.serving_pod_groups(),
        server.scheduling_by(packing()),
        grouping(server, webhook),
        leader(server, controllers),
        occupied(server, "used-0", "2"),
        GangJob(server, "packed", 2, required()) as job,
    ):
        wait_until(lambda: runs(job), SECONDS, "both pods to run")
        assert leaves_of(job) == {"used"}
        assert nodes_of(job) == seats(job)
        assert len(nodes_of(job)) == 1
