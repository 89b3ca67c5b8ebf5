"""The controllers of the chart with gangs: they have exactly the rights that it uses beyond those of the controllers."""

from collections.abc import Mapping
from typing import Any

import pytest

from railnet.apiserver.client import Answer
from railnet.apiserver.request import ApiGroup, ApiObject, Request, ServerVersion
from railnet.gangs.evictions import STUCK_SECONDS
from railnet.jobs.gang.engine import pod_group_name
from tests.charts import features
from tests.charts.rendered import CHART, Right, rendered, rights
from tests.railnet.controllers.gangs.eviction_rounds import place_and_take
from tests.railnet.controllers.gangs.gang_cluster import GangCluster, Leader
from tests.railnet.controllers.gangs.gang_cluster import path as pod_path

ACCOUNT = "railnet-controllers"
PATH = f"/apis/scheduling.k8s.io/v1beta1/namespaces/ml/podgroups/{pod_group_name('gpt')}"


def an_older_pod_group(least: int) -> dict[str, Any]:
    """Return a PodGroup that an earlier leader has created."""
    metadata = {
        "namespace": "ml",
        "name": pod_group_name("gpt"),
        "labels": {"app.kubernetes.io/managed-by": "railnet"},
    }
    return {"metadata": metadata, "spec": {"schedulingPolicy": {"gang": {"minCount": least}}}}


class Used(GangCluster):
    """The API server in memory, which also notes the right that each request needs."""

    def __init__(self) -> None:
        super().__init__()
        self.rights: set[Right] = set()

    def exchange(self, request: Request, headers: Mapping[str, str], most_bytes: int) -> Answer:
        about = request.about
        assert not isinstance(about, ApiGroup | ServerVersion)
        below = f"/{about.subresource}" if isinstance(about, ApiObject) and about.subresource else ""
        self.rights.add((about.api_version.rpartition("/")[0], about.resource + below, request.verb.right))
        return super().exchange(request, headers, most_bytes)


def used() -> set[Right]:
    """Return the rights that the controller needs for gangs of which one is placed and evicted again, and one waits for a PodGroup that exists."""
    cluster = Used()
    for leaf in "ab":
        for number in range(4):
            cluster.add_node(f"{leaf}-{number}", leaf)
    cluster.add_gang("bert", 4)
    leader = Leader(cluster)
    place_and_take(cluster, leader, "a")
    cluster.now += STUCK_SECONDS
    leader.settle()
    assert [reason for reason, _, _ in cluster.events] == ["GangPlaced", "GangEvicted"]
    cluster.put(PATH, an_older_pod_group(5))
    cluster.add_node("c-0", "c", gpus=32)
    cluster.add_gang("gpt", 4, grouped=True)
    leader.settle()
    for rank in range(4):
        cluster.remove(pod_path(f"gpt-{rank}"))
    leader.settle()
    watched = {
        (informer._about.api_version.rpartition("/")[0], informer._about.resource, verb)
        for informer in leader.gangs.informers.values()
        for verb in ("list", "watch")
    }
    return cluster.rights | watched


@pytest.mark.slow
def test_value_adds_exactly_the_rights_that_gangs_use() -> None:
    given = rights(rendered(**features.CONTROLLERS), ACCOUNT)

    assert rights(rendered(**features.GANGS), ACCOUNT) - given == used() - given


@pytest.mark.slow
def test_without_the_value_no_pod_can_be_changed_or_evicted() -> None:
    given = rights(rendered(**features.CONTROLLERS), ACCOUNT)

    assert {verb for _, resource, verb in given if resource.startswith("pods")} == {"list", "watch"}


def test_each_right_has_its_reason_beside_it() -> None:
    text = (CHART / "templates/controllers/gangs-role.yaml").read_text().partition("---")[0]
    verbs = [
        line for line in text.splitlines() if line.lstrip().startswith(("- ", "verbs: [")) and "apiGroups" not in line
    ]

    assert verbs
    assert [line for line in verbs if "#" not in line] == []
