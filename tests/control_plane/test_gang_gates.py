"""`railnet admission --gangs`: whose pods wait for nothing, and run as they did without it.

Which pods are asked about, and what they become, is in test_gang_webhook.
"""

import time
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.cluster.process import wait_until
from tests.control_plane.api import JsonObject
from tests.control_plane.cluster import Cluster
from tests.control_plane.gang_cluster import (
    CONTAINERS,
    LEAF,
    PLACEMENT,
    SECONDS,
    gating,
    is_gated,
    leaf,
    required,
    runs,
)
from tests.control_plane.gang_jobs import GangJob
from tests.control_plane.nodes import node, some_nodes
from tests.control_plane.server import ApiServer

UNGATED = "ungated"
_QUIET_SECONDS = 12.0


@pytest.fixture(scope="module")
def webhook(server: ApiServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with gating(server, tmp_path_factory.mktemp("webhook")) as found:
        yield found


def plain(server: ApiServer, name: str) -> JsonObject:
    made = server.api.create(f"/api/v1/namespaces/{UNGATED}/pods", {"metadata": {"name": name}, "spec": CONTAINERS})
    assert made.status == 201, made.message
    return made.object


def quiet_calls(webhook: Cluster) -> Counter[str]:
    """Return the calls so far when none has come for a while: a Job of an earlier test may still make pods, after pauses of ten seconds."""
    seen = [webhook.calls()]

    def is_quiet() -> bool:
        time.sleep(_QUIET_SECONDS)
        seen.append(webhook.calls())
        return seen[-1] == seen[-2]

    wait_until(is_quiet, SECONDS, "no other pod to be asked about")
    return seen[-1]


def test_pod_without_a_gang_is_never_asked_about(server: ApiServer, webhook: Cluster) -> None:
    server.namespace(UNGATED)
    before = quiet_calls(webhook)
    path = f"/api/v1/namespaces/{UNGATED}/pods"
    with some_nodes(server.api, [node("a")]):
        served = plain(server, "served")
        webhook.stop()
        try:
            down = plain(server, "down")
            wait_until(
                lambda: [one["status"]["phase"] for one in server.api.items(path)] == ["Running"] * 2,
                SECONDS,
                "both pods to run",
            )
        finally:
            webhook.start()
            server.api.delete(f"{path}?gracePeriodSeconds=0")

    assert (is_gated(served), is_gated(down)) == (False, False)
    assert webhook.calls() == before


def test_namespace_that_is_off_has_no_gates(server: ApiServer, webhook: Cluster) -> None:
    server.namespace("gangs-off", {"railnet.io/gang": "off"})
    with some_nodes(server.api, leaf("leaf", 1, 5)), GangJob(server, "gangs-off", 5, required()) as job:
        wait_until(lambda: runs(job), SECONDS, "five pods to run")
        assert all(PLACEMENT not in one["metadata"].get("annotations", {}) for one in job.pods())
        assert all(LEAF not in one["spec"].get("nodeSelector", {}) for one in job.pods())
